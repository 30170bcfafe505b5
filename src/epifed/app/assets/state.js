// What the server holds, and what the reader chose on the page.
let DATA = { step: 'day', level: 'region' };
const shown = { region: -1, weeks: 4, progress: null, busy: '', problem: null, forecastProblem: '', working: false };

// Sentences of the program in German, by the English ones.
const GERMAN = {};
const said = (sentence) => (state.lang === 'de' ? GERMAN[sentence] ?? sentence : sentence);

class Refusal extends Error {}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, { cache: 'no-store', credentials: 'same-origin', ...options });
  } catch {
    shown.lost = true;
    drawLabels();
    throw new Refusal('');
  }
  const found = await answer.json().catch(() => ({ problem: t('broken') }));
  Object.assign(GERMAN, found.german);
  if (!answer.ok) throw new Refusal(found.code === 'too-big' ? t('tooBig') : found.problem);
  return found;
}

function take(found) {
  const map = DATA.map && found.map && DATA.map.id === found.map.id ? DATA.map : found.map;
  DATA = { ...found, map, level: 'region', step: found.check ? found.check.step : 'day' };
}

const post = (action, body) => ask(`api/${action}`, { method: 'POST', body: JSON.stringify(body ?? {}), headers: { 'content-type': 'application/json' } });
