const DATA = JSON.parse($('data').textContent);
const NAMES = DATA.regions.names;
const PEOPLE = DATA.regions.people;
const COUNT = NAMES.length;
const AS_OF = dayNumber(DATA.as_of);
const HISTORY = DATA.history;
const FORECAST = DATA.forecast;
const NOWCAST = DATA.nowcast;
const BACKTEST = DATA.backtest;
// What a weekly release costs: of an office's own week, or of a backtest's.
const ALONE = DATA.alone;
const TOTAL = DATA.total;
const ABOUT = DATA.about;
const PAID = ALONE ? null : DATA.release ?? (BACKTEST && { learner: BACKTEST.record.learner, epsilon: BACKTEST.record.epsilon_per_release, total: BACKTEST.record.epsilon_total, releases: BACKTEST.record.releases, delta: BACKTEST.record.delta, right: BACKTEST.right });
const GRID = DATA.grid;
const LEVEL = { low95: 0, low80: 1, low50: 2, median: 3, high50: 4, high80: 5, high95: 6 };
const HORIZON = DATA.settings.horizon;

const STEP = DATA.step === 'week' ? 7 : 1;
const PER_WEEK = 7 / STEP;

// Cases in the seven days, or the week, `back` days before the day the report is of.
function sumOfWeek(region, back) {
  const end = HISTORY.days - 1 - back / STEP;
  const counts = HISTORY.counts[region];
  if (end < PER_WEEK - 1 || end >= counts.length) return null;
  let sum = 0;
  for (let i = end - PER_WEEK + 1; i <= end; i += 1) sum += counts[i];
  return sum;
}

function lastKnown(region) {
  if (HISTORY) return sumOfWeek(region, 0);
  const past = FORECAST ? null : BACKTEST ? BACKTEST.past.truth[region] : GRID && GRID.tests ? GRID.tests.truth[region] : null;
  return past ? past[past.length - 1] : null;
}

const NOW = NAMES.map((_, i) => lastKnown(i));
const BEFORE = NAMES.map((_, i) => (HISTORY ? sumOfWeek(i, 7) : null));

// Per 100,000 people where they are known, cases otherwise.
const rate = (region, sum) => (sum === null || sum === undefined ? null : PEOPLE ? (sum / PEOPLE[region]) * 1e5 : sum);
const unit = () => t(PEOPLE ? 'unitRate' : 'unitCases');
const measureName = () => t(PEOPLE ? 'rateName' : 'casesName');
const measureLower = () => t(PEOPLE ? 'rateLower' : 'casesLower');

// The weeks ahead that can be chosen, as positions among the horizons.
const WEEKS = FORECAST ? [7, 14, 21, 28].map((h) => FORECAST.horizons.indexOf(h)).filter((i) => i >= 0) : [];
if (FORECAST && !WEEKS.length) WEEKS.push(0);
const NEXT = WEEKS.length ? WEEKS[0] : null;
const quantile = (level, region, at) => FORECAST.values[level][region][at];
const horizonDay = (at) => AS_OF + FORECAST.horizons[at];

// Who makes the forecasts of the page, and whether it lost to "like today" on past weeks.
const LEARNER = DATA.release?.learner ?? BACKTEST?.record.learner ?? null;
const LOST = ABOUT?.method === 'persistence' || Boolean(!ALONE && BACKTEST && typeof BACKTEST.record.mae_ratio === 'number' && BACKTEST.record.mae_ratio >= 1);

// All regions together: the quantile of the cases of seven days, and the chance that they rise.
const WHOLE = Boolean(TOTAL) && NEXT !== null && NAMES.every((_, i) => quantile(LEVEL.median, i, NEXT) !== null);
function totalOf(level) {
  const at = WHOLE ? TOTAL.horizons.indexOf(FORECAST.horizons[NEXT]) : -1;
  return at < 0 ? null : TOTAL.values[level][at];
}

function chanceBetween(now, levels, values) {
  if (now < values[0]) return 1 - levels[0];
  for (let k = 1; k < values.length; k += 1) {
    if (now < values[k]) {
      const share = (now - values[k - 1]) / (values[k] - values[k - 1]);
      return 1 - (levels[k - 1] + share * (levels[k] - levels[k - 1]));
    }
  }
  return now > values[values.length - 1] ? 1 - levels[values.length - 1] : 0.5;
}

function ahead(at) {
  const days = FORECAST.horizons[at];
  return days % 7 === 0 ? t('weeks', { n: days / 7 }) : t('days', { n: days });
}

function change(region, at) {
  const to = at === null ? NOW[region] : quantile(LEVEL.median, region, at);
  const from = at === null ? BEFORE[region] : NOW[region];
  return from === null || to === null || from === 0 ? null : to / from - 1;
}

// The probability that the value will be above today's, between the quantiles that are known.
function chanceOfRise(region, at) {
  const now = NOW[region];
  if (now === null || quantile(0, region, at) === null) return null;
  return chanceBetween(now, FORECAST.levels, FORECAST.levels.map((_, k) => quantile(k, region, at)));
}

const LIKELY = 0.9;
const direction = (chance) => (chance === null ? 0 : chance >= LIKELY ? 1 : chance <= 1 - LIKELY ? -1 : 0);

function chance(value) {
  if (value === null) return '–';
  return value > 0.97 ? '> 97 %' : value < 0.03 ? '< 3 %' : percent(value);
}

const folded = (text) => text.toLowerCase().normalize('NFD').replace(/[\u0300-\u036f]/g, '').replace(/ß/g, 'ss').replace(/([aou])e/g, '$1');
const FOLDED = NAMES.map((name, i) => folded(`${name} ${DATA.regions.ids[i]}`));

// Names that begin so first, then those with a word that does, then the rest.
function search(text, most = 8) {
  const wanted = folded(text.trim());
  if (!wanted) return [];
  const rank = (name) => (name.startsWith(wanted) ? 0 : name.includes(` ${wanted}`) ? 1 : name.includes(wanted) ? 2 : 3);
  return FOLDED.map((name, i) => [rank(name), i]).filter(([r]) => r < 3).sort((a, b) => a[0] - b[0] || a[1] - b[1]).slice(0, most).map(([, i]) => i);
}

// A learner or baseline as the reader's language calls it.
const methodName = (method) => t('methods')[method] ?? method;
const gridLearner = () => methodName(federated(gridCell())[0].method);

const budgets = () => (GRID ? GRID.privacy.budgets : []);
const gridCell = () => GRID.cells[state.cell];
const federated = (cell) => cell.rows.filter((row) => row.epsilon !== null);
const persistenceOf = (cell) => cell.rows.find((row) => row.method === 'persistence');
const METRICS = DATA.metrics.filter((metric) => !metric.small_counts || DATA.level === 'community');
// In the reader's language, else as its registry calls it.
const metricName = ({ words, label, unit: of }) => words[state.lang] ?? (of ? `${label}, ${of}` : label);
// Over an error of 0 there is no ratio.
const over = (error, base) => (base ? error / base : null);
const overPersistence = (cell, row) => over(row.mean.mae, persistenceOf(cell)?.mean.mae);

// The budget a reader meets first: the strictest that beats persistence, else the middle one.
function firstBudget(cell) {
  const rows = federated(cell);
  const finite = rows.filter((row) => row.epsilon !== 'inf');
  const winner = finite.findIndex((row) => overPersistence(cell, row) < 1);
  return winner >= 0 ? winner : Math.max(0, finite.length - 1);
}
