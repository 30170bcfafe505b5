function drawWeek() {
  const last = lastTraining();
  if (!last) {
    $('week-lead').textContent = t('weekNone');
    $('week-facts').replaceChildren();
    $('week-reasons').replaceChildren();
    $('rounds-part').hidden = true;
    return;
  }
  const round = last.done.at(-1);
  const without = round ? Object.values(round.without).reduce((sum, n) => sum + n, 0) : null;
  const lead = t('weekLead', { name: last.name, first: longDay(dayOf(last.first_day)), last: longDay(dayOf(last.last_day)) });
  const more = last.seeded ? ` ${t('weekTest')}` : last.learned ? '' : ` ${t('weekWasted')}`;
  $('week-lead').textContent = `${lead}${more}`;
  $('week-lead').classList.toggle('bad', !last.learned);
  facts('week-facts',
    fact(t('roundsOf'), t('ofRounds', { done: num(round ? round.number : 0, 0), all: num(last.rounds, 0) })),
    fact(t('tookPart'), without === null ? '–' : t('ofRounds', { done: num(DATA.sites.length - without, 0), all: num(DATA.sites.length, 0) })),
    fact(t('epsilonSoFar'), round ? up(round.epsilon) : '–'),
    ...(last.seconds === null ? [] : [fact(t('perRound'), num(last.seconds, 1), t('middle'))]));
  const codes = Object.entries(last.codes).sort((a, b) => b[1] - a[1]);
  $('week-reasons').replaceChildren(...(codes.length ? [make('h3', {}, t('reasonsTitle')), make('div', { class: 'scroll', tabindex: '0' }, table({ caption: '', heads: [t('why'), { text: t('times'), number: true }], rows: codes.map(([code, n]) => [reason(code), num(n, 0)]) }))] : []));
  drawRounds(last);
}

function drawRounds(last) {
  $('rounds-part').hidden = last.done.length < 2;
  if (last.done.length < 2) return;
  const colours = stateColours();
  const names = ['faulty', 'refused', 'late', 'absent'].filter((state) => last.done.some((one) => one.without[state]));
  const labels = last.done.map((one) => num(one.number, 0));
  const words = names.map((state) => t('stateName')[state]);
  draw('rounds', `${t('roundsTitle')}: ${names.map((state) => `${t('stateName')[state]} ${num(last.done.at(-1).without[state] || 0, 0)}`).join(', ')}`, {
    grid: { left: 8, right: 8, top: legendHeight('rounds', words) + 6, bottom: 4, containLabel: true },
    legend: chartLegend([], words),
    tooltip: tooltip((items) => `<strong>${esc(t('round'))} ${esc(items[0].name)}</strong>${items.filter((item) => item.value).map((item) => `<br>${esc(num(item.value, 0))} ${esc(item.seriesName)}`).join('')}`),
    xAxis: { type: 'category', data: labels, axisLabel: axisText(), axisTick: { show: false }, axisLine: { lineStyle: { color: css('--line') } } },
    yAxis: valueAxis({ minInterval: 1 }),
    series: names.map((state, i) => ({ type: 'bar', stack: 'sites', name: words[i], data: last.done.map((one) => one.without[state] || 0), itemStyle: { color: colours[state] }, barMaxWidth: 22 })),
  });
  behind('rounds-table', () => table({
    caption: t('roundsTitle'),
    heads: [{ text: t('round'), number: true }, ...words.map((text) => ({ text, number: true }))],
    rows: last.done.map((one) => [num(one.number, 0), ...names.map((state) => num(one.without[state] || 0, 0))]),
  }));
}

function drawReleases() {
  const list = [...released()].reverse();
  $('releases-lead').textContent = t('releasesLead', { n: list.length });
  drawWorth(list.length);
  if (!list.length) {
    $('releases-list').replaceChildren();
    return;
  }
  const two = list.some((one) => one.release.epsilon_without_amplification > one.release.epsilon * (1 + 1e-9));
  const heads = [t('release'), t('learned'), t('made'), { text: t('epsilonAlone'), number: true }, ...(two ? [{ text: t('drawnSeen'), number: true }] : []), { text: t('sitesWithout'), number: true }, { text: t('delivered'), number: true }, t('hash')];
  const rows = list.map((one) => {
    const round = one.done.at(-1);
    const without = round ? Object.values(round.without).reduce((sum, n) => sum + n, 0) : 0;
    return [
      one.learned ? one.name : { text: make('b', { class: 'bad' }, `${one.name}: ${t('wasted')}`), sort: one.name },
      { text: `${tableDay(dayOf(one.first_day))} – ${tableDay(dayOf(one.last_day))}`, sort: one.last_day },
      { text: moment(one.release.created), sort: one.release.created },
      { text: up(one.release.epsilon), sort: one.release.epsilon },
      ...(two ? [{ text: up(one.release.epsilon_without_amplification), sort: one.release.epsilon_without_amplification }] : []),
      { text: num(without, 0), sort: without },
      { text: num(one.held, 0), sort: one.held },
      `${one.release.sha256.slice(0, 12)}…`,
    ];
  });
  $('releases-list').replaceChildren(make('div', { class: 'scroll', tabindex: '0' }, table({ caption: t('releasesTitle'), heads, rows, sortable: true })));
}

function drawWorth(releases) {
  const list = DATA.worth;
  $('worth-part').hidden = !releases;
  const came = list.filter((one) => one.came !== null);
  const error = (name) => came.reduce((sum, one) => sum + Math.abs(one[name] - one.came), 0);
  const ratio = came.length && error('like_today') ? error('forecast') / error('like_today') : null;
  $('worth-verdict').textContent = ratio !== null ? t('worthVerdict', { n: num(came.length, 0), ratio: num(ratio, 2) }) : t(list.length ? 'worthWaits' : DATA.truth ? 'worthNothing' : 'worthNone');
  $('worth-verdict').className = `verdict ${ratio === null ? '' : ratio < 1 ? 'good' : 'bad'}`;
  const drawn = list.length > 1;
  $('worth').hidden = !drawn;
  $('worth-table').hidden = !drawn;
  if (!drawn) return;
  const { ink, model, other } = INK();
  const names = [t('came'), t('forecast'), t('like')];
  const line = (name, key, style) => ({ type: 'line', name, data: list.map((one) => [dayOf(one.target) * DAY, one[key]]), symbol: 'circle', symbolSize: 6, ...style });
  draw('worth', $('worth-verdict').textContent, {
    grid: { left: 8, right: 16, top: legendHeight('worth', names) + 6, bottom: 4, containLabel: true },
    legend: chartLegend(names),
    tooltip: tooltip((items) => `<strong>${esc(longDay(items[0].value[0] / DAY))}</strong>${items.map((item) => `<br>${esc(item.seriesName)}: ${esc(amount(item.value[1]))}`).join('')}`),
    xAxis: timeAxis(dayOf(list[0].target) - 3, dayOf(list.at(-1).target) + 3),
    yAxis: valueAxis({}),
    series: [
      line(names[0], 'came', { itemStyle: { color: ink }, lineStyle: { color: ink, width: 2 } }),
      line(names[1], 'forecast', { itemStyle: { color: model }, lineStyle: { color: model, width: 2 } }),
      line(names[2], 'like_today', { itemStyle: { color: other }, lineStyle: { color: other, width: 1.5, type: 'dashed' }, symbolSize: 4 }),
    ],
  });
  behind('worth-table', () => table({
    caption: t('worthTitle'),
    heads: [t('release'), t('target'), ...names.map((text) => ({ text, number: true }))],
    rows: [...list].reverse().map((one) => [one.training, tableDay(dayOf(one.target)), one.came === null ? '–' : amount(one.came), amount(one.forecast), amount(one.like_today)]),
  }));
}
