const cellName = (cell) => `${periodName(cell.period)}, ${t('split')[cell.split] ?? cell.split}`;

function periodName(period) {
  const days = period.match(/^(\d{4}-\d\d-\d\d)_(\d{4}-\d\d-\d\d)$/);
  if (days) return `${shortDay(dayNumber(days[1]))} – ${longDay(dayNumber(days[2]))}`;
  return /^\d{4}-\d\d$/.test(period) ? dated(dayNumber(`${period}-01`), { month: 'long', year: 'numeric' }) : period;
}

const gradeOf = (epsilon) => t('grade', epsilonOf(epsilon));

function drawPrivacy() {
  const explorable = Boolean(GRID && federated(gridCell()).length);
  if (explorable) {
    $('cell').replaceChildren(...GRID.cells.map((cell, i) => make('option', { value: i, selected: i === state.cell }, cellName(cell))));
    $('cell-pick').hidden = GRID.cells.length < 2;
    const rows = federated(gridCell());
    const other = BACKTEST ? BACKTEST.record.learner : null;
    $('explorer-lead').textContent = t('explorerLead', { learner: gridLearner(), other: other && methodName(other) });
    $('epsilon').max = rows.length - 1;
    $('epsilon').value = state.epsilon;
    $('ticks').replaceChildren(...rows.map((row) => make('span', {}, eps(row.epsilon))));
    drawBudget();
  }
  drawLedger(explorable);
}

function drawBudget() {
  const cell = gridCell();
  const rows = federated(cell);
  const row = rows[state.epsilon];
  const ratio = overPersistence(cell, row);
  const like = persistenceOf(cell);
  $('epsilon-out').textContent = `ε = ${eps(row.epsilon)}`;
  $('epsilon').setAttribute('aria-valuetext', `ε = ${eps(row.epsilon)}, ${gradeOf(row.epsilon)}`);
  [...$('ticks').children].forEach((tick, i) => tick.classList.toggle('on', i === state.epsilon));
  const spread = (m, format) => (row.std[m] === null ? '' : `± ${format(row.std[m])}`);
  const beside = (m, text) => [spread(m, text), like ? `${t('persistence')}: ${text(like.mean[m])}` : ''].filter(Boolean).join(' · ');
  const per = (v) => (v === null ? '–' : `${num(v)} %`);
  facts('epsilon-facts',
    fact(t('overPersistence'), ratio === null ? '–' : `${num(ratio)} ×`, t('belowOne'), ratio === null ? '' : ratio < 1 ? 'good' : 'bad'),
    fact(t('mae'), num(row.mean.mae), beside('mae', (v) => num(v))),
    fact(t('mape'), per(row.mean.mape), beside('mape', per)),
    fact(t('r2'), share(row.mean.r2), beside('r2', share)));
  drawWords(cell, row, ratio);
  drawCurve(cell, rows);
}

function drawWords(cell, row, ratio) {
  const budget = budgets().find((b) => b.epsilon === row.epsilon);
  const level = spoken();
  const said = [make('p', {}, make('strong', {}, `${gradeOf(row.epsilon)[0].toUpperCase()}${gradeOf(row.epsilon).slice(1)}.`), ' ', row.epsilon === 'inf' ? t('wordNone', { level }) : budget ? t('wordGuess', { right: bound(budget.right), noise: bound(budget.right_noise), level }) : '')];
  if (ratio !== null) said.push(make('p', {}, t('wordWorth', { learner: gridLearner(), ratio: num(ratio), better: ratio < 1 })));
  const free = federated(cell).find((r) => r.epsilon === 'inf');
  if (free && row !== free && free.mean.mae) said.push(make('p', {}, t('wordBest', { ratio: num(over(row.mean.mae, free.mean.mae)) })));
  if (budget && row.epsilon !== 'inf') {
    said.push(make('p', {}, t('wordNoise', { c: num(budget.noise), rounds: num(GRID.privacy.rounds, 0), level })));
    said.push(make('p', { class: 'note' }, t('wordUnit', { delta: scientific(GRID.privacy.delta), accountant: GRID.privacy.accountant, level })));
  }
  if (DATA.seeded) said.push(make('p', { class: 'warn' }, t('privacySeeded')));
  $('epsilon-words').replaceChildren(...said);
  const right = row.epsilon === 'inf' ? 1 : budget ? budget.right : null;
  $('guess').replaceChildren();
  if (right === null) return;
  const fill = make('div', { class: 'fill' });
  fill.style.width = `${(right - 0.5) * 200}%`;
  $('guess').append(make('div', { class: 'meter', role: 'img', 'aria-label': t('guessLabel', bound(right)) }, fill), make('div', { class: 'meter-ends', 'aria-hidden': 'true' }, make('span', {}, t('coin')), make('b', {}, t('guessLabel', bound(right))), make('span', {}, t('certain'))));
}

function drawCurve(cell, rows) {
  const { ink, soft, model, other } = INK();
  const like = persistenceOf(cell);
  const base = like ? like.mean.mae : 1;
  $('curve-part').hidden = !base;
  if (!base) return;
  const ratios = rows.map((row) => row.mean.mae / base);
  const bars = rows.map((row, i) => [i, Math.max((row.mean.mae - (row.std.mae || 0)) / base, ratios[i] / 20), (row.mean.mae + (row.std.mae || 0)) / base]);
  $('curve-title').textContent = t('curveTitle');
  const error = (params, api) => {
    const [x, low] = api.coord([api.value(0), api.value(1)]);
    const high = api.coord([api.value(0), api.value(2)])[1];
    const shape = (x1, y1, x2, y2) => ({ type: 'line', shape: { x1, y1, x2, y2 }, style: { stroke: soft, lineWidth: 1.2 } });
    return { type: 'group', children: [shape(x, low, x, high), shape(x - 4, low, x + 4, low), shape(x - 4, high, x + 4, high)] };
  };
  draw('curve', `${t('curveTitle')}: ${rows.map((row, i) => `ε = ${eps(row.epsilon)}: ${num(ratios[i])}`).join('; ')}`, {
    grid: { left: 8, right: 20, top: 24, bottom: 26, containLabel: true },
    tooltip: { ...tooltip((items) => `<strong>ε = ${esc(eps(rows[items[0].dataIndex].epsilon))}</strong><br>${esc(num(ratios[items[0].dataIndex]))} ×`) },
    xAxis: { type: 'category', data: rows.map((row) => eps(row.epsilon)), name: 'ε', nameLocation: 'middle', nameGap: 26, nameTextStyle: { color: ink, fontSize: 14 }, axisLabel: axisText(), axisTick: { show: false }, axisLine: { onZero: false, lineStyle: { color: css('--line') } } },
    yAxis: valueAxis({ type: 'log', logBase: 10, min: (v) => 10 ** Math.floor(Math.log10(Math.min(0.9, v.min))), axisLabel: { ...axisText(), formatter: (v) => `${num(v)} ×` } }),
    series: [
      { type: 'custom', renderItem: error, data: bars, encode: { x: 0, y: [1, 2] }, silent: true, z: 2 },
      {
        type: 'line', name: t('overPersistence'), data: ratios.map((value, i) => ({ value, symbolSize: i === state.epsilon ? 16 : 8, itemStyle: { color: i === state.epsilon ? css('--mark') : model, borderColor: css('--card'), borderWidth: 2 } })), symbol: 'circle', lineStyle: { color: model, width: 2 }, z: 3,
        markLine: { silent: true, symbol: 'none', animation: false, lineStyle: { color: other, type: 'dashed', width: 1.5 }, label: { formatter: t('persistence'), color: other, position: 'insideStartTop', fontSize: 12 }, data: [{ yAxis: 1 }] },
      },
    ],
  });
  behind('curve-table', () => table({
    caption: `${t('curveTitle')}: ${cellName(cell)}`,
    heads: [t('epsilon'), { text: t('overPersistence'), number: true }, { text: t('mae'), number: true }, { text: t('mape'), number: true }, { text: t('r2'), number: true }, { text: t('runs'), number: true }],
    rows: rows.map((row, i) => [eps(row.epsilon), num(ratios[i]), num(row.mean.mae), num(row.mean.mape), share(row.mean.r2), num(row.runs, 0)]),
  }));
}

function drawLedger(explorable) {
  const parts = [];
  if (PAID) parts.push(make('p', {}, t('oneBudget', { learner: methodName(PAID.learner), each: epsUp(PAID.epsilon), total: epsUp(PAID.total), delta: scientific(PAID.delta) })));
  if (!explorable) parts.push(make('p', {}, t('noExplorer')));
  parts.push(make('h3', {}, t('ledgerTitle')));
  const book = DATA.ledger;
  if (!book) parts.push(make('p', { class: 'note' }, t('ledgerNone')));
  else {
    const up = (value) => num(Math.ceil(value * 1e4) / 1e4, 3);
    const { cap } = book;
    parts.push(make('p', {}, t('ledgerLead', { cap: eps(cap.epsilon), delta: scientific(cap.delta), accountant: cap.accountant.toUpperCase(), taken: up(book.taken), left: num(Math.floor(book.left * 1000) / 1000, 3) }), ' ', book.taken > book.spent ? t('ledgerHeld', { spent: up(book.spent) }) : ''));
    if (cap.weeks) parts.push(make('p', {}, t('ledgerRenews', { weeks: num(cap.weeks, 0), total: up(book.total) })));
    const fill = make('div', { class: 'fill' });
    fill.style.width = `${Math.min(100, (100 * book.taken) / cap.epsilon)}%`;
    parts.push(make('div', { class: 'meter', 'aria-hidden': 'true' }, fill));
    if (book.runs.length) {
      const rows = book.runs.map((run) => [run.run, tableDay(dayNumber(run.opened)), run.data, `${num(run.spent, 0)} / ${num(run.rounds, 0)}`, t('outcome')[run.outcome] ?? run.outcome, up(run.epsilon)]);
      const heads = [t('ledgerRun'), t('ledgerDay'), t('ledgerData'), { text: t('ledgerRounds'), number: true }, t('ledgerState'), { text: t('ledgerEpsilon'), number: true }];
      parts.push(make('div', { class: 'scroll', tabindex: '0' }, table({ caption: t('ledgerTitle'), heads, rows })), make('p', { class: 'note' }, t('ledgerSum')));
    }
    parts.push(make('p', { class: 'note hash' }, `SHA-256 ${book.head}`));
  }
  $('ledger').replaceChildren(...parts);
}
