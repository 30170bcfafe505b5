const SHOWN_DAYS = DATA.step === 'week' ? 728 : 120;

function select(region, goThere) {
  state.region = region;
  drawMap();
  drawRegion();
  if (goThere) {
    $('region-card').scrollIntoView({ block: 'nearest' });
    $('map').focus({ preventScroll: true });
  }
}

function drawRegion() {
  const i = state.region;
  const group = DATA.regions.groups && DATA.regions.groups[i];
  $('region-group').textContent = [group, DATA.regions.ids[i] === NAMES[i] ? null : DATA.regions.ids[i], PEOPLE && t('inhabitants', num(PEOPLE[i], 0))].filter(Boolean).join(' · ');
  $('region-name').textContent = NAMES[i];
  const at = WEEKS[state.week] ?? null;
  const list = [fact(t('current'), amount(rate(i, NOW[i])), unit())];
  if (at !== null) {
    const [low, mid, high] = [LEVEL.low95, LEVEL.median, LEVEL.high95].map((k) => rate(i, quantile(k, i, at)));
    list.push(fact(t('expected', { when: ahead(at) }), amount(mid), `${t('interval95')}: ${amount(low)} – ${amount(high)}`, 'model'));
    list.push(fact(t('probability'), chance(chanceOfRise(i, at)), change(i, at) === null ? '' : `${t('change')}: ${signed(change(i, at))}`));
    if (FORECAST.parts) list.push(fact(t('whence'), ...whence(i, at)));
  } else if (BEFORE[i] !== null) list.push(fact(t('weekBefore'), amount(rate(i, BEFORE[i])), change(i, null) === null ? '' : `${t('change')}: ${signed(change(i, null))}`));
  facts('region-facts', ...list);
  drawFan(i);
  drawNowcast(i);
  drawPast(i);
}

// What all regions together, the place, the own level, holidays and missing reports add to the change of a forecast.
function whence(region, at) {
  const parts = FORECAST.parts.map((part) => part[region][at]);
  const names = ['partCountry', 'partPlace', 'partOwn', 'partCalendar', 'partReports'].map((name) => t(name));
  const [country, ...others] = parts.map((part, k) => (part === null ? '–' : `${names[k]} ${signed(Math.exp(part) - 1)}`));
  return [country, others.join(', ')];
}

// The history as [day, rate] up to the day of the report, then what was reported after it.
function courses(region) {
  if (!HISTORY) return { known: [], later: [] };
  const pairs = [];
  const extra = STEP * (HISTORY.counts[region].length - HISTORY.days);
  for (let back = Math.min(STEP * (HISTORY.days - PER_WEEK), SHOWN_DAYS); back >= -extra; back -= STEP) pairs.push([AS_OF - back, rate(region, sumOfWeek(region, back))]);
  return { known: pairs.filter(([day]) => day <= AS_OF), later: pairs.filter(([day]) => day >= AS_OF) };
}

function fanRows(region) {
  const start = rate(region, NOW[region]);
  const value = (level, k) => rate(region, quantile(level, region, k));
  const days = FORECAST.horizons.map((_, k) => horizonDay(k));
  const of = (level) => FORECAST.horizons.map((_, k) => value(level, k));
  const joined = (level) => (start === null ? of(level) : [start, ...of(level)]);
  return { days: start === null ? days : [AS_OF, ...days], of: joined };
}

// Where the axis ends, if the widest band would squeeze everything else to the ground.
function fanTop(region, reported) {
  if (!FORECAST) return null;
  const last = FORECAST.horizons.length - 1;
  const of = (level, k) => rate(region, quantile(level, region, k)) || 0;
  const needed = 1.15 * Math.max(...reported, of(LEVEL.high95, NEXT), of(LEVEL.high50, last));
  const widest = Math.max(...FORECAST.horizons.map((_, k) => of(LEVEL.high95, k)));
  if (widest <= 1.5 * needed) return null;
  const step = 10 ** Math.floor(Math.log10(needed)) / 2;
  return Math.ceil(needed / step) * step;
}

function drawFan(region) {
  const { ink, soft, paper, model } = INK();
  const { known, later } = courses(region);
  const words = { name: NAMES[region], unit: unit() };
  const title = t(FORECAST ? 'fanTitle' : 'historyTitle', { name: measureName() });
  $('fan-title').textContent = title;
  $('fan').hidden = !HISTORY && !FORECAST;
  $('fan-table').hidden = $('fan').hidden;
  if ($('fan').hidden) {
    $('fan-note').textContent = t('noHistory');
    return;
  }
  const series = [];
  const legend = [];
  const bands = [];
  let end = AS_OF;
  if (FORECAST) {
    const { days, of } = fanRows(region);
    end = days[days.length - 1];
    for (const [size, low, high, opacity] of [[95, 'low95', 'high95', 0.16], [80, 'low80', 'high80', 0.2], [50, 'low50', 'high50', 0.32]]) {
      series.push(...band(t('band', size), days, of(LEVEL[low]), of(LEVEL[high]), opacity, model, 2));
    }
    series.push({ name: t('median'), type: 'line', symbol: 'none', data: days.map((day, k) => [day * DAY, of(LEVEL.median)[k]]), lineStyle: { color: model, width: 2.5 }, itemStyle: { color: model }, z: 4 });
    legend.push(t('median'));
    bands.push(t('band', 50), t('band', 80), t('band', 95));
  }
  series.push({
    name: t('observed'), type: 'line', symbol: 'none', data: points(known), lineStyle: { color: ink, width: 2 }, itemStyle: { color: ink }, z: 5,
    markLine: { silent: true, symbol: 'none', animation: false, lineStyle: { color: soft, type: 'solid', width: 1 }, label: { formatter: `${t('today')} ${shortDay(AS_OF)}`, position: 'end', rotate: 0, color: soft, fontSize: 12 }, data: [{ xAxis: AS_OF * DAY }] },
  });
  legend.unshift(t('observed'));
  if (later.length > 1) {
    end = Math.max(end, later[later.length - 1][0]);
    series.push({ name: t('later'), type: 'line', symbol: 'none', data: points(later), lineStyle: { color: soft, width: 1.5, type: [2, 3] }, itemStyle: { color: soft }, z: 3 });
    legend.splice(1, 0, t('later'));
  }
  const lookup = new Map([...known, ...later]);
  const top = fanTop(region, [...lookup.values()]);
  const note = [t(FORECAST ? 'fanNote' : 'historyNote', { name: measureName(), unit: unit() })];
  if (top !== null) note.push(t('cutOff'));
  if (!HISTORY) note.push(t('noHistory'));
  note.push(...anomalies(region));
  $('fan-note').textContent = note.join(' ');
  draw('fan', `${title}: ${words.name}, ${words.unit}. ${lines(region).map((pair) => pair.join(': ')).join('; ')}`, {
    grid: { left: 8, right: 14, top: 18 + legendHeight('fan', [...legend, ...bands]), bottom: 4, containLabel: true },
    legend: chartLegend(legend, bands),
    tooltip: tooltip((items) => fanTip(region, Math.round(items[0].value[0] / DAY), lookup)),
    xAxis: timeAxis(known.length ? known[0][0] : AS_OF, end), yAxis: valueAxis({ min: 0, max: top }), series,
    backgroundColor: paper,
  });
  behind('fan-table', () => fanTable(region, known, later));
}

// The reports of the last weeks that the forecast does not take for counts of their day.
function anomalies(region) {
  const found = (DATA.anomalies || []).filter(([of]) => of === region);
  if (!found.length) return [];
  const list = found.map(([, day, kind, reported, expected]) => t('anomaly', { day: shortDay(dayNumber(day)), reported: num(reported, 0), expected: num(expected, 0), kind: t('anomalyKinds')[kind] }));
  return [t('anomalies', { list: list.join('; ') })];
}

function fanTip(region, day, lookup) {
  const rows = [];
  if (lookup.has(day)) rows.push([t(day > AS_OF ? 'later' : 'observed'), amount(lookup.get(day))]);
  const k = FORECAST ? FORECAST.horizons.indexOf(day - AS_OF) : -1;
  if (k >= 0) {
    const value = (level) => amount(rate(region, quantile(LEVEL[level], region, k)));
    rows.push([t('median'), value('median')]);
    for (const size of [50, 80, 95]) rows.push([t('band', size), `${value(`low${size}`)} – ${value(`high${size}`)}`]);
  }
  return `<strong>${esc(longDay(day))}</strong><table class="tip">${rows.map(([a, b]) => `<tr><th>${esc(a)}</th><td>${esc(b)}</td></tr>`).join('')}</table>`;
}

function fanTable(region, known, later) {
  const heads = [t('day'), { text: t('observed'), number: true }];
  const lookup = new Map([...known, ...later]);
  const days = new Set(known.filter((_, k) => (known.length - 1 - k) % PER_WEEK === 0).map(([day]) => day));
  if (FORECAST) {
    heads.push({ text: t('median'), number: true }, ...[50, 80, 95].map((size) => ({ text: t('band', size), number: true })));
    FORECAST.horizons.forEach((_, k) => days.add(horizonDay(k)));
  }
  const rows = [...days].sort((a, b) => a - b).map((day) => {
    const row = [{ text: tableDay(day), sort: day }, lookup.has(day) ? amount(lookup.get(day)) : '–'];
    if (!FORECAST) return row;
    const k = FORECAST.horizons.indexOf(day - AS_OF);
    const value = (level) => amount(rate(region, quantile(LEVEL[level], region, k)));
    return k < 0 ? [...row, '–', '–', '–', '–'] : [...row, value('median'), ...[50, 80, 95].map((size) => `${value(`low${size}`)} – ${value(`high${size}`)}`)];
  });
  return table({ caption: `${NAMES[region]}, ${measureName()}, ${unit()}`, heads, rows });
}

// Past forecasts of the backtest; without one, the test days of the grid at the chosen budget.
function pastOf(region) {
  if (BACKTEST) {
    const of = (name) => BACKTEST.past[name][region].map((v) => rate(region, v));
    return { days: BACKTEST.days.map(dayNumber), truth: of('truth'), like: of('persistence'), model: of('point'), bands: [[95, of('lower_95'), of('upper_95'), 0.16], [50, of('lower_50'), of('upper_50'), 0.3]], score: BACKTEST.regions[region] };
  }
  const tests = GRID && GRID.tests;
  if (!tests || !tests.federated.length) return null;
  const chosen = federated(gridCell())[state.epsilon];
  const k = Math.max(0, tests.epsilons.indexOf(chosen ? chosen.epsilon : null));
  const of = (values) => values.map((v) => rate(region, v));
  const error = (values) => values.reduce((sum, v, d) => sum + Math.abs(v - tests.truth[region][d]), 0) / values.length / PER_WEEK;
  return {
    days: tests.days.map(dayNumber), truth: of(tests.truth[region]), like: of(tests.persistence[region]), model: of(tests.federated[k][region]), bands: [],
    epsilon: tests.epsilons[k], score: { forecasts: tests.days.length, mae: error(tests.federated[k][region]), persistence_mae: error(tests.persistence[region]) },
  };
}

function drawPast(region) {
  const past = pastOf(region);
  $('past-part').hidden = !past || !past.score;
  if ($('past-part').hidden) return;
  const { ink, model, other } = INK();
  const title = t(past.epsilon === undefined ? 'pastTitle' : 'testTitle', { steps: BACKTEST ? BACKTEST.horizon / STEP : HORIZON, eps: past.epsilon === undefined ? '' : eps(past.epsilon) });
  $('past-title').textContent = title;
  const { forecasts: n, mae, persistence_mae: like, coverage_95: c95 } = past.score;
  const ratio = over(mae, like);
  const words = { n, mae: `${num(mae, 1)} ${t('casesADay')}`, like: num(like, 1), percent: better(ratio) === '' ? null : percent(Math.abs(1 - ratio)), better: ratio < 1, c95: percent(c95), level: spoken(), eps: past.epsilon === undefined ? '' : eps(past.epsilon) };
  const verdict = make('span', { class: `verdict ${better(ratio)}` }, t(past.epsilon === undefined ? 'pastVerdict' : 'testVerdict', words));
  const coverage = past.epsilon === undefined ? make('span', { class: `verdict ${held(c95, 0.95)}` }, ` ${t('pastCoverage', words)}`) : '';
  $('past-verdict').replaceChildren(verdict, coverage);
  const few = past.days.length < 5;
  const line = (name, values, colour, extra) => ({ name, type: 'line', data: past.days.map((day, k) => [day * DAY, values[k]]), symbol: 'circle', symbolSize: few ? 8 : 4, showSymbol: few || past.days.length < 40, lineStyle: { color: colour, width: 2 }, itemStyle: { color: colour }, ...extra });
  const bands = past.bands.flatMap(([size, low, high, opacity]) => band(t('band', size), past.days, low, high, opacity, model, 1));
  const series = [...bands, line(t('past'), past.model, model, { z: 4 }), line(t('persistence'), past.like, other, { lineStyle: { color: other, width: 1.5, type: 'dashed' }, symbol: 'diamond', z: 3 }), line(t('truth'), past.truth, ink, { z: 5 })];
  const margin = few ? 1 : 0;
  const names = [t('truth'), t('past'), t('persistence')];
  const bandNames = past.bands.map(([size]) => t('band', size));
  draw('past', `${title}: ${NAMES[region]}. ${$('past-verdict').textContent}`, {
    grid: { left: 8, right: 14, top: legendHeight('past', [...names, ...bandNames]), bottom: 4, containLabel: true },
    legend: chartLegend(names, bandNames),
    tooltip: tooltip((items) => {
      const k = past.days.indexOf(Math.round(items[0].value[0] / DAY));
      const rows = [[t('truth'), past.truth[k]], [t('past'), past.model[k]], [t('persistence'), past.like[k]]];
      return `<strong>${esc(longDay(past.days[k]))}</strong><table class="tip">${rows.map(([a, b]) => `<tr><th>${esc(a)}</th><td>${esc(amount(b))}</td></tr>`).join('')}</table>`;
    }),
    xAxis: { ...timeAxis(past.days[0] - margin, past.days[past.days.length - 1] + margin), ...(few ? { minInterval: DAY } : {}) }, yAxis: valueAxis({ min: few ? null : 0, scale: few }), series,
  });
  behind('past-table', () => table({
    caption: `${title}: ${NAMES[region]}, ${unit()}`,
    heads: [t('target'), { text: t('truth'), number: true }, { text: t('past'), number: true }, { text: t('persistence'), number: true }, ...past.bands.map(([size]) => ({ text: t('band', size), number: true }))],
    rows: past.days.map((day, k) => [tableDay(day), amount(past.truth[k]), amount(past.model[k]), amount(past.like[k]), ...past.bands.map(([, low, high]) => `${amount(low[k])} – ${amount(high[k])}`)]),
  }));
}
