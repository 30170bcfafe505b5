// The check of the counts, the forecast from them, and what to take along.
const checkDays = () => DATA.check.counts[0].map((_, k) => dayNumber(DATA.check.start) + k * stepDays());
const stepDays = () => (DATA.step === 'week' ? 7 : 1);
const steps = (n) => t(DATA.step === 'week' ? 'weeks' : 'days', num(n, 0));

function countsOf(region) {
  const { counts } = DATA.check;
  return region >= 0 ? counts[region] : counts[0].map((_, k) => counts.reduce((sum, one) => sum + one[k], 0));
}

const peopleOf = (region) => {
  const { people } = DATA.check;
  return people ? (region >= 0 ? people[region] : people.reduce((a, b) => a + b, 0)) : null;
};
const rateOf = (region, cases) => (cases === null ? null : (cases / peopleOf(region)) * 1e5);
const regionName = (region) => (region >= 0 ? DATA.check.names[region] : t('allRegions'));

async function makeForecast(options) {
  shown.working = true;
  shown.forecastProblem = '';
  drawForecast();
  const watch = setInterval(async () => {
    try { shown.progress = await ask('api/progress'); } catch { /* asked again */ }
    drawWorking();
  }, 400);
  try {
    take(await post('forecast', options));
  } catch (refusal) {
    if (!(refusal instanceof Refusal)) throw refusal;
    shown.forecastProblem = refusal.message;
  } finally {
    clearInterval(watch);
    shown.working = false;
    shown.progress = null;
  }
  drawAll();
}

// A bar, and how long it will take once a few weeks have shown it.
function drawWorking() {
  if (!shown.working) return;
  const { done = 0, of = 0 } = shown.progress ?? {};
  if (!done) shown.began = Date.now();
  const left = done > 1 ? ((Date.now() - shown.began) / 1000 / done) * (of - done) : null;
  const words = of ? t('computed', { done: num(Math.min(done + 1, of), 0), of: num(of, 0) }) : t('computing');
  $('headline').replaceChildren(make('span', { class: 'busy' }, words, make('progress', { max: of || 1, value: of ? done : null, 'aria-label': words }), left !== null && of ? make('small', {}, t('timeLeft', num(Math.max(1, left), 0))) : null));
}

function finding(kind, words) {
  return make('li', { class: kind }, make('i', { 'aria-hidden': 'true' }, kind === 'look' ? '!' : '✓'), make('span', {}, words));
}

function findings() {
  const { check, forecast } = DATA;
  const { missing } = check;
  const list = [finding('fine', t('checkFine', { regions: t('regionsOf', num(check.names.length, 0)), first: longDay(dayNumber(check.first_day)), last: longDay(dayNumber(check.last_day)), cases: num(check.cases, 0) }))];
  if (!check.enough) list.push(finding('look', t('checkShort', { days: steps(check.days), needed: steps(check.needed) })));
  if (missing.count) list.push(finding('look', t('checkGaps', { count: num(missing.count, 0), share: percent(missing.share, missing.share < 0.01 ? 1 : 0), regions: num(missing.regions, 0), longest: steps(missing.longest), region: nameOf(missing.region) })));
  else list.push(finding('fine', t(DATA.step === 'week' ? 'checkNoWeekGaps' : 'checkNoGaps')));
  const kinds = Object.entries(check.anomaly_counts).filter(([, n]) => n);
  const total = kinds.reduce((sum, [, n]) => sum + n, 0);
  if (total) list.push(finding('look', t('checkAnomalies', { n: num(total, 0), list: kinds.map(([kind, n]) => t('anomalyCounts')[kind](num(n, 0))).join(', ') })));
  else list.push(finding('fine', t('checkNoAnomalies')));
  if (DATA.step === 'day') {
    const n = check.incomplete_days;
    list.push(n ? finding('look', t('checkIncomplete', { n, days: t('days', num(n, 0)) })) : finding('fine', t('checkComplete')));
  }
  if (check.future_days) list.push(finding('look', t('checkFuture', { last: longDay(dayNumber(check.last_day)), days: t('days', num(check.future_days, 0)) })));
  if (check.silent.length) list.push(finding('look', t('checkSilent', { n: num(check.silent.length, 0) })));
  if (check.fractional) list.push(finding('look', t('checkFractional', { n: num(check.fractional, 0) })));
  if (!check.people) list.push(finding('look', t('checkNoPeople')));
  return list;
}

const nameOf = (id) => DATA.check.names[DATA.check.ids.indexOf(id)] ?? id;
const leftOut = () => (DATA.forecast ? DATA.forecast.incomplete_days : DATA.check.incomplete_days);

function drawCheck() {
  const { check } = DATA;
  $('check').hidden = !check;
  if (!check) return;
  $('findings').replaceChildren(...findings());
  const several = check.names.length > 1;
  $('region').replaceChildren(...(several ? [[-1, t('allRegions')]] : []).concat(check.names.map((name, i) => [i, name])).map(([i, name]) => make('option', { value: i, selected: i === shown.region }, name)));
  const daily = DATA.step === 'day' && !(DATA.forecast && DATA.forecast.nowcast);
  $('incomplete-part').hidden = !daily;
  $('incomplete').checked = leftOut() > 0;
  $('incomplete').disabled = shown.working;
  $('incomplete-days').disabled = shown.working;
  $('incomplete-words').textContent = t('incomplete');
  $('incomplete-days').value = leftOut() || check.incomplete_days || 2;
  $('incomplete-days').setAttribute('aria-label', t('incompleteUnit', 2));
  $('incomplete-unit').textContent = t('incompleteUnit', Number($('incomplete-days').value));
  drawCounts();
  const rows = check.anomalies.filter(([of]) => shown.region < 0 || of === shown.region);
  $('anomalies-table').hidden = !rows.length;
  behind('anomalies-table', () => table({
    caption: '', sortable: true, heads: [t('day'), t('regionHead'), { text: t('reported'), number: true }, { text: t('expectedCount'), number: true }, t('kind')],
    rows: rows.map(([of, day, kind, reported, expected]) => [{ text: tableDay(dayNumber(day)), sort: day }, check.names[of], sortable(reported, (v) => num(v, 0)), sortable(expected, (v) => num(v, 0)), t('anomalyKinds')[kind]]),
  }));
}

function drawCounts() {
  const { check } = DATA;
  const { ink, soft, line, other, model } = INK();
  const days = checkDays();
  const values = countsOf(shown.region);
  const weekly = DATA.step === 'week';
  const name = t(weekly ? 'countsWeek' : 'countsName');
  const mean = weekly ? [] : days.map((day, k) => [day * DAY, k < 6 ? null : values.slice(k - 6, k + 1).reduce((a, b) => a + b, 0) / 7]);
  const mine = (of) => shown.region < 0 || of === shown.region;
  const unusual = new Map(check.anomalies.filter(([of]) => mine(of)).map(([of, day, kind]) => [dayNumber(day), `${check.names[of]}: ${t('anomalyKinds')[kind]}`]));
  const gaps = new Map();
  check.gaps.filter(([of]) => mine(of)).forEach(([, k]) => gaps.set(days[k], (gaps.get(days[k]) ?? 0) + 1));
  const n = weekly ? 0 : leftOut();
  const last = days[days.length - 1];
  const at = new Map(days.map((day, k) => [day, values[k]]));
  const marks = (list, label, symbol, colour) => ({ name: label, type: 'scatter', data: list.map((day) => [day * DAY, at.get(day) ?? 0]), symbol, symbolSize: 11, itemStyle: { color: colour, borderColor: ink, borderWidth: symbol === 'diamond' ? 1 : 0 }, z: 6 });
  const legend = [name, ...(weekly ? [] : [t('meanName')]), ...(unusual.size ? [t('anomalyName')] : []), ...(gaps.size ? [t('gapName')] : [])];
  const cross = 'path://M0,1L1,0L4,3L7,0L8,1L5,4L8,7L7,8L4,5L1,8L0,7L3,4Z';
  draw('counts', `${name}, ${regionName(shown.region)}`, {
    grid: { left: 8, right: 14, top: 12 + legendHeight('counts', legend), bottom: 4, containLabel: true },
    legend: chartLegend(legend),
    tooltip: tooltip((items) => {
      const day = Math.round(items[0].value[0] / DAY);
      const rows = [[name, num(at.get(day) ?? null)]];
      if (unusual.has(day)) rows.push([t('anomalyName'), unusual.get(day)]);
      if (gaps.has(day)) rows.push([t('gapName'), num(gaps.get(day), 0)]);
      if (n && day > last - n) rows.push([t('incompleteName'), '']);
      return `<strong>${esc(longDay(day))}</strong><table class="tip">${rows.map(([a, b]) => `<tr><th>${esc(a)}</th><td>${esc(b)}</td></tr>`).join('')}</table>`;
    }),
    xAxis: timeAxis(days[0] - stepDays() / 2, last + stepDays() / 2), yAxis: valueAxis({ min: 0 }),
    series: [
      { name, type: 'bar', data: days.map((day, k) => [day * DAY, values[k]]), itemStyle: { color: soft, opacity: 0.55 }, barCategoryGap: '15%', z: 2,
        markArea: n ? { silent: true, itemStyle: { color: line, opacity: 0.75 }, label: { show: false }, data: [[{ xAxis: (last - n + 0.5) * DAY }, { xAxis: (last + 0.5) * DAY }]] } : undefined },
      ...(weekly ? [] : [{ name: t('meanName'), type: 'line', symbol: 'none', data: mean, lineStyle: { color: model, width: 2 }, itemStyle: { color: model }, z: 5 }]),
      ...(unusual.size ? [marks([...unusual.keys()], t('anomalyName'), 'diamond', other)] : []),
      ...(gaps.size ? [marks([...gaps.keys()], t('gapName'), cross, other)] : []),
    ],
  });
  const marked = [n ? 'markIncomplete' : null, unusual.size ? 'markAnomaly' : null, gaps.size ? 'markGap' : null].filter(Boolean).map((word) => t(word));
  $('counts-note').textContent = [`${regionName(shown.region)}, ${name}.`, ...marked].join(' ');
}

// The forecast of the chosen region, or of all: median, bands, and what it starts from.
function chosenForecast() {
  const { forecast } = DATA;
  const alone = forecast.region !== null;
  const at = alone ? 0 : shown.region;
  const values = at >= 0 ? forecast.values[at] : forecast.total;
  return { values: values.slice(0, shown.weeks), like: at >= 0 ? forecast.like_today[at] : forecast.total_like_today, days: forecast.dates.slice(0, shown.weeks).map(dayNumber), origin: dayNumber(forecast.origin), point: (at >= 0 ? forecast.point[at] : forecast.total_point).slice(0, shown.weeks) };
}

const LOW95 = 0; const LOW50 = 1; const MEDIAN = 2; const HIGH50 = 3; const HIGH95 = 4;

function sevenDaySums(region, until) {
  const values = countsOf(region);
  const days = checkDays();
  const per = 7 / stepDays();
  return days.map((day, k) => [day, k + 1 < per ? null : values.slice(k + 1 - per, k + 1).reduce((a, b) => a + b, 0)]).filter(([day, v]) => v !== null && day <= until);
}

function headline(found) {
  const { forecast } = DATA;
  const [first] = forecast.track;
  const next = found.values[0];
  const words = { low: amount(next[LOW95]), high: amount(next[HIGH95]), cases: amount(found.point[0]) };
  if (forecast.method === 'persistence') {
    const worse = first.relative_mae >= 1;
    const why = t(worse ? 'whyWorse' : 'whyWorseTogether', { n: num(first.origins, 0), percent: percent(first.relative_mae - 1, first.relative_mae < 1.01 ? 1 : 0) });
    return [t('headLike', words), t('standLike', { ...words, why })];
  }
  const change = found.like ? found.point[0] / found.like - 1 : null;
  const same = change !== null && Math.abs(change) < 0.05;
  const said = change === null ? t('changeNone') : same ? t('changeSame') : t(change > 0 ? 'changeUp' : 'changeDown', percent(Math.abs(change)));
  const likely = forecast.rise[forecast.region !== null ? 0 : shown.region + 1];
  const direction = likely >= 0.9 ? 'sureUp' : likely >= 0.7 ? 'likelyUp' : likely <= 0.1 ? 'sureDown' : likely <= 0.3 ? 'likelyDown' : 'sureOpen';
  const sure = t(direction, percent(likely <= 0.3 ? 1 - likely : likely));
  return [t('headTrend', { ...words, change: said }), t('standTrend', { ...words, sure })];
}

function drawForecast() {
  const { check, forecast } = DATA;
  $('forecast').hidden = !check;
  $('take').hidden = !forecast || shown.working;
  if (!check) return;
  $('forecast-problem').hidden = !shown.forecastProblem;
  $('forecast-problem').replaceChildren(make('b', {}, t('forecastProblem')), make('p', {}, said(shown.forecastProblem)));
  $('forecast-part').hidden = !forecast || shown.working;
  $('headline').hidden = Boolean(shown.forecastProblem) && !shown.working;
  $('standfirst').textContent = '';
  $('forecast-kicker').textContent = '';
  if (shown.working || !forecast) {
    drawWorking();
    return;
  }
  const found = chosenForecast();
  const name = regionName(forecast.region !== null ? check.ids.indexOf(forecast.region) : shown.region);
  const [head, stand] = headline(found);
  $('forecast-kicker').textContent = t('forecastKicker', { day: longDay(dayNumber(forecast.origin)), name });
  $('headline').textContent = head.replace(/ %/g, '\u00a0%');
  $('standfirst').textContent = stand;
  drawWeeks();
  const several = check.names.length > 1;
  $('alone-part').hidden = !several || (shown.region < 0 && forecast.region === null);
  $('alone').checked = forecast.region !== null;
  drawFacts(found);
  drawFan(found, name);
  drawForecastMap();
  drawRecord();
  drawNowcast();
  const notes = forecast.one_region ? [t('noteOneRegion')] : [];
  $('forecast-notes').replaceChildren(...notes.map((words) => make('li', {}, words)));
  $('regions-table').hidden = !several || forecast.region !== null;
  if (!$('regions-table').hidden) behind('regions-table', regionsTable);
  drawTakes();
}

function drawWeeks() {
  const legend = $('weeks').firstElementChild;
  const most = DATA.forecast.dates.length;
  shown.weeks = Math.min(shown.weeks, most);
  $('weeks').replaceChildren(legend, ...Array.from({ length: most }, (_, k) => make('label', {}, make('input', { type: 'radio', name: 'weeks', value: k + 1, checked: k + 1 === shown.weeks, onchange: () => { shown.weeks = k + 1; drawForecast(); } }), make('span', {}, t('weeksAhead', k + 1)))));
}

function drawFacts(found) {
  const region = DATA.forecast.region !== null ? DATA.check.ids.indexOf(DATA.forecast.region) : shown.region;
  const per = (cases) => (DATA.check.people ? t('per100000', amount(rateOf(region, cases))) : t('unitCases'));
  const list = [fact(t(DATA.forecast.nowcast ? 'lastCompleted' : 'lastSeven'), amount(found.like), per(found.like))];
  found.values.forEach((quantiles, k) => list.push(fact(t('expectedWeek', { day: shortDay(found.days[k]) }), amount(found.point[k]), `${t('interval95')}: ${amount(quantiles[LOW95])} – ${amount(quantiles[HIGH95])}`, 'model')));
  facts('forecast-facts', ...list);
}

// Where the axis ends, if the widest band would squeeze everything else to the ground.
function fanTop(found, known) {
  const last = found.values[found.values.length - 1];
  const needed = 1.15 * Math.max(...known.map(([, value]) => value), found.values[0][HIGH95], last[HIGH50]);
  return Math.max(...found.values.map((values) => values[HIGH95])) > 1.6 * needed ? needed : null;
}

function drawFan(found, name) {
  const { ink, soft, model, other, paper } = INK();
  const region = DATA.forecast.region !== null ? DATA.check.ids.indexOf(DATA.forecast.region) : shown.region;
  const known = sevenDaySums(region, found.origin).slice(-(DATA.step === 'week' ? 104 : 120));
  const start = found.like;
  const days = [found.origin, ...found.days];
  const of = (level) => [start, ...found.values.map((values) => values[level])];
  const bands = [t('band', 50), t('band', 95)];
  const like = DATA.forecast.method === 'persistence';
  const names = [t('observed'), t('median'), ...(like ? [] : [t('likeToday')])];
  const lookup = new Map(known);
  const top = fanTop(found, known);
  const height = valueAxis({ min: 0, max: top });
  height.axisLabel.showMaxLabel = top === null;
  draw('fan', `${t('median')}: ${name}. ${found.values.map((values, k) => `${shortDay(found.days[k])}: ${amount(found.point[k])} (${amount(values[LOW95])} – ${amount(values[HIGH95])})`).join('; ')}`, {
    grid: { left: 8, right: 14, top: 18 + legendHeight('fan', [...names, ...bands]), bottom: 4, containLabel: true },
    legend: chartLegend(names, bands), backgroundColor: paper,
    tooltip: tooltip((items) => {
      const day = Math.round(items[0].value[0] / DAY);
      const k = found.days.indexOf(day);
      const rows = [];
      if (lookup.has(day)) rows.push([t('observed'), amount(lookup.get(day))]);
      if (k >= 0) rows.push([t('median'), amount(found.point[k])], [t('band', 50), `${amount(found.values[k][LOW50])} – ${amount(found.values[k][HIGH50])}`], [t('band', 95), `${amount(found.values[k][LOW95])} – ${amount(found.values[k][HIGH95])}`], [t('likeToday'), amount(found.like)]);
      return `<strong>${esc(longDay(day))}</strong><table class="tip">${rows.map(([a, b]) => `<tr><th>${esc(a)}</th><td>${esc(b)}</td></tr>`).join('')}</table>`;
    }),
    xAxis: timeAxis(known.length ? known[0][0] : found.origin, days[days.length - 1]), yAxis: height,
    series: [
      ...band(t('band', 95), days, of(LOW95), of(HIGH95), 0.18, model, 2), ...band(t('band', 50), days, of(LOW50), of(HIGH50), 0.34, model, 2),
      { name: t('median'), type: 'line', symbol: 'circle', symbolSize: 6, data: days.map((day, k) => [day * DAY, k ? found.point[k - 1] : start]), lineStyle: { color: model, width: 2.5 }, itemStyle: { color: model }, z: 4 },
      ...(like ? [] : [{ name: t('likeToday'), type: 'line', symbol: 'none', data: days.map((day) => [day * DAY, start]), lineStyle: { color: other, width: 1.5, type: 'dashed' }, itemStyle: { color: other }, z: 3 }]),
      { name: t('observed'), type: 'line', symbol: 'none', data: points(known), lineStyle: { color: ink, width: 2 }, itemStyle: { color: ink }, z: 5,
        markLine: { silent: true, symbol: 'none', animation: false, lineStyle: { color: soft, type: 'solid', width: 1 }, label: { formatter: `${t('today')} ${shortDay(found.origin)}`, position: 'end', rotate: 0, color: soft, fontSize: 12 }, data: [{ xAxis: found.origin * DAY }] } },
    ],
  });
  $('fan-note').textContent = `${t('fanNote', { name, unit: t('unitCases') })} ${top === null ? '' : t('cutOff')}`;
  behind('fan-table', () => table({
    caption: `${name}, ${t('unitCases')}`,
    heads: [t('day'), { text: t('median'), number: true }, { text: t('band', 50), number: true }, { text: t('band', 95), number: true }, { text: t('likeToday'), number: true }],
    rows: found.days.map((day, k) => [tableDay(day), amount(found.point[k]), `${amount(found.values[k][LOW50])} – ${amount(found.values[k][HIGH50])}`, `${amount(found.values[k][LOW95])} – ${amount(found.values[k][HIGH95])}`, amount(found.like)]),
  }));
}

function drawRecord() {
  const { track, shown_track: of } = DATA.forecast;
  const [first] = track;
  const tested = first.origins >= DATA.forecast.least_origins && first.relative_mae !== null;
  const better = tested && first.relative_mae < 1;
  const size = tested ? Math.abs(first.relative_mae - 1) : 0;
  $('verdict').className = `verdict ${tested ? (better ? 'good' : 'bad') : ''}`;
  $('verdict').textContent = tested ? t(better ? 'verdictBetter' : 'verdictWorse', { n: num(first.origins, 0), percent: percent(size, size < 0.01 ? 1 : 0) }) : t('verdictNone', { n: num(first.origins, 0) });
  const mixed = tested && track.some((one) => one.relative_mae !== null && (one.relative_mae < 1) !== (DATA.forecast.method === 'trend'));
  const heads = t('recordHeads').map((text, i) => (i ? { text, number: true } : text));
  $('record').replaceChildren(table({
    caption: `${t('recordCaption')}${mixed ? ` ${t('oneMethod')}` : ''}`, heads,
    rows: track.map((one, k) => [String(one.weeks_ahead), num(one.origins, 0), one.relative_mae === null ? '–' : t('ratio', Math.round(100 * (one.relative_mae - 1)) / 100), percent(of[k].coverage_50), percent(of[k].coverage_95)]),
  }));
}

// The expected change of each region; where "like today" is the forecast, how many cases there are.
function drawForecastMap() {
  const { check, forecast, map } = DATA;
  const several = check.names.length > 1 && forecast.region === null;
  $('map-part').hidden = !several;
  if (!several) return;
  for (const part of [document.querySelector('.map-frame'), $('legend'), $('map-title')]) part.hidden = !map;
  $('map-hint').textContent = t(map ? 'mapHint' : 'mapOffer');
  if (!map) return;
  const changes = forecast.method === 'trend';
  const week = shown.weeks - 1;
  const value = (i) => (changes ? (forecast.like_today[i] ? forecast.point[i][week] / forecast.like_today[i] - 1 : null) : check.people ? rateOf(i, forecast.like_today[i]) : forecast.like_today[i]);
  const values = check.names.map((_, i) => value(i));
  const dark = state.dark;
  const scale = changes ? { breaks: CHANGES, colours: dark ? DIVERGING_DARK : DIVERGING, text: signed } : { breaks: niceBreaks(values), colours: dark ? SEQUENTIAL_DARK : SEQUENTIAL, text: amount };
  const unit = check.people ? t('unitRate') : t('unitCases');
  $('map-title').textContent = changes ? t('mapChange', { day: longDay(dayNumber(forecast.dates[week])) }) : t('mapNow', { unit });
  $('map').setAttribute('aria-label', $('map-title').textContent);
  showLegend(classNames(scale), changes ? '' : unit);
  const describe = (i) => {
    const quantiles = forecast.values[i][week];
    const rows = [[t('lastSeven'), amount(forecast.like_today[i])], [t('expectedWeek', { day: shortDay(dayNumber(forecast.dates[week])) }), `${amount(forecast.point[i][week])} (${amount(quantiles[LOW95])} – ${amount(quantiles[HIGH95])})`]];
    return `<strong>${esc(check.names[i])}</strong><table class="tip">${rows.map(([a, b]) => `<tr><th>${esc(a)}</th><td>${esc(b)}</td></tr>`).join('')}</table>`;
  };
  const choose = (i) => { shown.region = i; drawAll(); };
  drawShapes(check.names.length, shown.region, choose, (i) => (values[i] === null ? css('--empty') : classColour(values[i], scale)), describe);
}

function drawNowcast() {
  const { nowcast } = DATA.forecast;
  $('nowcast-part').hidden = !nowcast;
  if (!nowcast) return;
  const { ink, model, soft } = INK();
  const region = DATA.forecast.region !== null ? 0 : shown.region < 0 ? nowcast.known.length - 1 : shown.region;
  const days = nowcast.days.map(dayNumber);
  const of = (name) => nowcast[name][region];
  const line = (name, values, colour) => ({ name, type: 'line', symbol: 'none', data: days.map((day, k) => [day * DAY, values[k]]), lineStyle: { color: colour, width: 2 }, itemStyle: { color: colour }, z: 4 });
  const wide = t('band', 95);
  for (const [id, names, series] of [
    ['nowcast', [t('known'), t('estimate')], [...band(wide, days, of('lower'), of('upper'), 0.2, model, 2), line(t('known'), of('known'), ink), line(t('estimate'), of('estimate'), model)]],
    ['reproduction', [t('r')], [...band(wide, days, of('r_lower'), of('r_upper'), 0.2, model, 2), { ...line(t('r'), of('r'), model), markLine: { silent: true, symbol: 'none', lineStyle: { color: soft }, label: { show: false }, data: [{ yAxis: 1 }] } }]],
  ]) {
    draw(id, `${names.join(', ')}: ${regionName(shown.region)}`, { grid: { left: 8, right: 14, top: 12 + legendHeight(id, [...names, wide]), bottom: 4, containLabel: true }, legend: chartLegend(names, [wide]), tooltip: tooltip((items) => `<strong>${esc(longDay(Math.round(items[0].value[0] / DAY)))}</strong>`), xAxis: timeAxis(days[0], days[days.length - 1]), yAxis: valueAxis({ min: 0 }), series });
  }
}

function regionsTable() {
  const { check, forecast } = DATA;
  const heads = [t('regionHead'), { text: t('lastSeven'), number: true }, ...forecast.dates.slice(0, shown.weeks).flatMap((day) => [{ text: t('expectedWeek', { day: shortDay(dayNumber(day)) }), number: true }, { text: t('interval95'), number: true }])];
  const row = (name, like, point, values) => [name, sortable(like, amount), ...values.slice(0, shown.weeks).flatMap((one, k) => [sortable(point[k], amount), { text: `${amount(one[LOW95])} – ${amount(one[HIGH95])}`, sort: one[HIGH95] }])];
  return table({ caption: t('unitCases'), sortable: true, heads, rows: [row(t('total'), forecast.total_like_today, forecast.total_point, forecast.total), ...check.names.map((name, i) => row(name, forecast.like_today[i], forecast.point[i], forecast.values[i]))] });
}

function drawTakes() {
  $('takes').replaceChildren(...Object.entries(t('take')).map(([kind, [words, more]]) => make('a', { class: 'choice', href: `api/take/${kind}?lang=${state.lang}`, download: '', 'data-kind': kind }, words, make('small', {}, more))));
}

function setUpForecast() {
  $('region').addEventListener('change', () => {
    shown.region = Number($('region').value);
    if (DATA.forecast && DATA.forecast.region !== null && DATA.check.names.length > 1) makeForecast({ region: null });
    else drawAll();
  });
  $('alone').addEventListener('change', () => makeForecast({ region: $('alone').checked ? DATA.check.ids[shown.region] : null }));
  const chooseDays = () => {
    const days = Math.min(21, Math.max(1, Math.round(Number($('incomplete-days').value)) || 1));
    makeForecast({ incomplete_days: $('incomplete').checked ? days : 0 });
  };
  $('incomplete').addEventListener('change', chooseDays);
  $('incomplete-days').addEventListener('change', () => { $('incomplete').checked = true; chooseDays(); });
}
