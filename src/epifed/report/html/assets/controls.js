// What every page has at its top: its words, the languages, light and dark.
function drawControls() {
  document.documentElement.lang = state.lang;
  document.documentElement.dataset.theme = state.dark ? 'dark' : 'light';
  document.querySelectorAll('[data-t]').forEach((element) => { element.textContent = t(element.dataset.t); });
  document.querySelectorAll('[data-t-label]').forEach((element) => { element.setAttribute('aria-label', t(element.dataset.tLabel)); element.title = element.tagName === 'BUTTON' ? t(element.dataset.tLabel) : ''; });
  $('lang-de').setAttribute('aria-pressed', String(state.lang === 'de'));
  $('lang-en').setAttribute('aria-pressed', String(state.lang === 'en'));
  $('theme').textContent = t(state.dark ? 'light' : 'dark');
  $('theme').setAttribute('aria-label', `${$('theme').textContent}: ${t('darkLabel')}`);
  $('theme').setAttribute('aria-pressed', String(state.dark));
  $('contents').replaceChildren(...Object.entries(t('nav')).map(([id, name]) => make('li', {}, make('a', { href: `#${id}` }, name))));
}

function setUpControls(redraw) {
  const preferred = remembered('lang') || (navigator.language || 'en').slice(0, 2);
  state.lang = preferred === 'de' ? 'de' : 'en';
  const darkness = window.matchMedia('(prefers-color-scheme: dark)');
  state.dark = remembered('theme') ? remembered('theme') === 'dark' : darkness.matches;
  darkness.addEventListener('change', (event) => { if (!remembered('theme')) { state.dark = event.matches; redraw(); } });
  for (const lang of ['de', 'en']) $(`lang-${lang}`).addEventListener('click', () => { state.lang = lang; remember('lang', lang); redraw(); });
  $('theme').addEventListener('click', () => { state.dark = !state.dark; remember('theme', state.dark ? 'dark' : 'light'); redraw(); });
}
