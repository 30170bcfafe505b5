const GLYPHS = { t: '●', a: '○', l: '◔', r: '✕', f: '!' };
const stateColours = () => ({ contributed: css('--there'), absent: css('--away'), late: css('--late'), refused: css('--no'), faulty: css('--bad') });

function listed(names, most = 4) {
  const shown = names.slice(0, most).join(', ');
  return names.length > most ? shown + t('more', num(names.length - most, 0)) : shown;
}

function drawSites() {
  const here = connected().length;
  const away = DATA.sites.length - there().length;
  $('sites-lead').textContent = t('sitesLead', { there: num(here, 0), all: num(DATA.sites.length, 0), away: away ? num(away, 0) : 0, live: reached() });
  const few = DATA.sites.length <= 40;
  $('waffle').classList.toggle('few', few);
  const squares = DATA.sites.map((site) => {
    const square = make('i', { class: site.state, title: `${site.name}: ${t('stateName')[site.state]}${site.code ? ` – ${reason(site.code)}` : ''}` });
    return square;
  });
  $('waffle').replaceChildren(...squares);
  const counts = STATES.map((state) => [state, sitesOf(state).length]).filter(([, n]) => n);
  $('waffle').setAttribute('aria-label', counts.map(([state, n]) => `${num(n, 0)} ${t('stateName')[state]}`).join(', '));
  $('keys').replaceChildren(...counts.map(([state, n]) => make('li', {}, make('i', { class: state, 'aria-hidden': 'true' }), make('b', {}, num(n, 0)), ` ${t('stateName')[state]}`)));
  drawPast();
  drawMissing();
  behind('sites-table', () => siteTable(DATA.sites, t('allSites')));
}

function drawPast() {
  const shown = DATA.trainings.filter((one) => !one.seeded).slice(-12);
  const length = Math.max(0, ...DATA.sites.map((site) => site.weeks.length));
  const weeks = shown.slice(-length);
  $('past-part').hidden = weeks.length < 2;
  if (weeks.length < 2) return;
  const names = ['faulty', 'refused', 'late', 'absent'];
  const counted = (state) => weeks.map((_, i) => DATA.sites.filter((site) => LETTERS[site.weeks.at(i - weeks.length)] === state).length);
  const colours = stateColours();
  const labels = weeks.map((one) => shortDay(dayOf(one.last_day)));
  const series = names.map((state) => ({ state, values: counted(state) })).filter(({ values }) => values.some(Boolean));
  const took = weeks.map((_, i) => DATA.sites.length - series.reduce((sum, { values }) => sum + values[i], 0));
  draw('past', `${t('pastTitle')}: ${labels.map((label, i) => `${label}: ${num(took[i], 0)} ${t('stateName').contributed}`).join('; ')}`, {
    grid: { left: 8, right: 8, top: legendHeight('past', series.map(({ state }) => t('stateName')[state])) + 6, bottom: 4, containLabel: true },
    legend: chartLegend([], series.map(({ state }) => t('stateName')[state])),
    tooltip: tooltip((items) => `<strong>${esc(labels[items[0].dataIndex])}</strong><br>${esc(num(took[items[0].dataIndex], 0))} ${esc(t('stateName').contributed)}${items.filter((item) => item.value).map((item) => `<br>${esc(num(item.value, 0))} ${esc(item.seriesName)}`).join('')}`),
    xAxis: { type: 'category', data: labels, axisLabel: axisText(), axisTick: { show: false }, axisLine: { lineStyle: { color: css('--line') } } },
    yAxis: valueAxis({ minInterval: 1 }),
    series: series.map(({ state, values }) => ({ type: 'bar', stack: 'sites', name: t('stateName')[state], data: values, itemStyle: { color: colours[state] }, barMaxWidth: 26 })),
  });
  behind('past-table', () => table({
    caption: t('pastTitle'),
    heads: [t('release'), { text: t('stateName').contributed, number: true }, ...series.map(({ state }) => ({ text: t('stateName')[state], number: true }))],
    rows: weeks.map((one, i) => [one.name, num(took[i], 0), ...series.map(({ values }) => num(values[i], 0))]),
  }));
}

function strip(weeks) {
  const there = [...weeks].filter((letter) => letter === 't').length;
  return make('span', { class: 'strip', role: 'img', 'aria-label': t('stripLabel', { there, all: weeks.length }), title: t('strip') }, [...weeks].map((letter) => GLYPHS[letter] ?? letter).join(''));
}

function siteTable(sites, caption) {
  const ends = new Map(DATA.certificates.map((one) => [one.party, one]));
  const some = { until: sites.some((site) => ends.has(site.name)), version: sites.some((site) => site.version) };
  const heads = [t('site'), { text: t('clients'), number: true }, t('now'), t('why'), t('lastWeeks'), t('hasRelease'), ...(some.until ? [t('until')] : []), ...(some.version ? [t('version')] : [])];
  const rows = sites.map((site) => [
    site.code ? { text: make('span', {}, site.name, make('small', { class: 'why' }, reason(site.code))), sort: site.name } : site.name,
    { text: num(site.clients, 0), sort: site.clients },
    { text: make('b', {}, t('stateName')[site.state]), sort: site.state },
    site.code ? reason(site.code) : '',
    { text: strip(site.weeks), sort: site.weeks },
    site.has_release === null ? '–' : t(site.has_release ? 'yes' : 'no'),
    ...(some.until ? [ends.has(site.name) ? { text: tableDay(dayOf(ends.get(site.name).ends)), sort: ends.get(site.name).ends } : '–'] : []),
    ...(some.version ? [site.version ?? '–'] : []),
  ]);
  return table({ caption, heads, rows, sortable: true });
}

function drawMissing() {
  const missing = DATA.sites.filter((site) => !THERE.includes(site.state) && site.state !== 'unknown');
  const order = ['faulty', 'refused', 'late', 'absent'];
  missing.sort((a, b) => order.indexOf(a.state) - order.indexOf(b.state) || a.name.localeCompare(b.name));
  $('missing').replaceChildren(...(missing.length ? [make('h3', {}, t('missingTitle')), make('div', { class: 'scroll', tabindex: '0' }, siteTable(missing, t('strip')))] : []));
}
