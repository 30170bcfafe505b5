// What is chosen by the reader. Storage can be forbidden for files opened from disk.
const state = { lang: 'en', dark: false, measure: 'now', week: 0, sure: false, region: 0, cell: 0, epsilon: 0 };

function remembered(key) {
  try { return localStorage.getItem(`epifed-${key}`); } catch { return null; }
}

function remember(key, value) {
  try { localStorage.setItem(`epifed-${key}`, value); } catch { /* not kept then */ }
}

const WORDS = { en: EN, de: DE };
const $ = (id) => document.getElementById(id);

// A number with the word that goes with it: 1 day, 2 days.
function many(n, one, more) {
  return `${n} ${String(n) === '1' ? one : more}`;
}

function t(key, values) {
  const words = WORDS[state.lang];
  const word = (DATA.step === 'week' && words.weekly[key]) || words[key];
  return typeof word === 'function' ? word(values) : word;
}

const locale = () => t('locale');
const spoken = () => WORDS[state.lang].level(DATA.level);

function num(value, digits) {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  if (value === Infinity) return '∞';
  const size = Math.abs(value);
  if (digits === undefined && (size >= 1e6 || (size < 1e-3 && size > 0))) {
    const [digits, power] = value.toExponential(1).split('e');
    return `${num(Number(digits), 1)}·10${superscript(power)}`;
  }
  const most = digits ?? (size >= 100 ? 0 : size >= 10 ? 1 : 2);
  return value.toLocaleString(locale(), { maximumFractionDigits: most, minimumFractionDigits: digits === undefined ? 0 : most })
    .replace(/^-/, '−');
}

// R² and the like: two digits, unless it is far off.
const share = (value) => (value !== null && Math.abs(value) < 100 ? num(value, 2) : num(value));

// Incidences and counts: a tenth only where it matters.
const amount = (value) => num(value, value !== null && Math.abs(value) < 10 && !Number.isInteger(value) ? 1 : 0);

function percent(part, digits = 0) {
  return part === null || part === undefined ? '–' : `${num(100 * part, digits)} %`;
}

// Rounded up, for it is a bound.
function bound(share) {
  const up = Math.min(Math.ceil(1000 * share - 1e-9) / 10, 100);
  return `${num(up, up === 100 ? 0 : 1)} %`;
}

function signed(share) {
  if (share === null || share === undefined) return '–';
  const text = percent(Math.abs(share));
  return text.startsWith('0 ') ? '±0 %' : `${share < 0 ? '−' : '+'}${text}`;
}

const epsilonOf = (value) => (value === 'inf' ? Infinity : value);
const eps = (value) => {
  const number = epsilonOf(value);
  return number === Infinity ? '∞' : number.toLocaleString(locale(), { maximumSignificantDigits: 4 });
};
// A cost is never told smaller than it is.
const epsUp = (value) => (value === 'inf' ? '∞' : num(Math.ceil(value * 100 - 1e-9) / 100, 2));
const scientific = (value) => {
  const [digits, power] = value.toExponential().split('e');
  return digits === '1' ? `10${superscript(power)}` : `${num(Number(digits))} · 10${superscript(power)}`;
};
const superscript = (power) => [...power].map((c) => ({ '-': '⁻', '+': '' })[c] ?? '⁰¹²³⁴⁵⁶⁷⁸⁹'[c]).join('');

const DAY = 86400000;
const dayNumber = (iso) => Date.UTC(+iso.slice(0, 4), +iso.slice(5, 7) - 1, +iso.slice(8, 10)) / DAY;

function dated(day, options) {
  return new Intl.DateTimeFormat(locale(), { timeZone: 'UTC', ...options }).format(new Date(day * DAY));
}

const longDay = (day) => dated(day, { day: 'numeric', month: 'long', year: 'numeric' });
const shortDay = (day) => dated(day, state.lang === 'de' ? { day: 'numeric', month: 'numeric' } : { day: 'numeric', month: 'short' });
const tableDay = (day) => dated(day, { day: '2-digit', month: '2-digit', year: 'numeric' });

const ENTITIES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
const esc = (text) => String(text).replace(/[&<>"']/g, (c) => ENTITIES[c]);

// Elements are made, never parsed: names in the data stay text.
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return element;
}

function fact(label, value, note, kind) {
  return make('div', { class: `fact ${kind || ''}` }, make('dt', {}, label), make('dd', {}, make('strong', {}, value), note ? make('small', {}, note) : null));
}

const facts = (id, ...list) => $(id).replaceChildren(make('dl', {}, list));
