// What is spent is never told smaller than it is, what is left never larger.
const up = (value) => num(Math.ceil(value * 1e4 - 1e-9) / 1e4, value < 0.1 ? 4 : 3);
const down = (value) => num(Math.floor(value * 1e3 + 1e-9) / 1e3, 3);

function drawBudget() {
  const budget = DATA.budget;
  $('burn-part').hidden = !budget;
  if (!budget) {
    $('budget-lead').textContent = t('budgetNone');
    return;
  }
  const held = budget.taken - budget.spent;
  $('budget-lead').textContent = t('budgetLead', { cap: eps(budget.epsilon), delta: scientific(budget.delta), accountant: budget.accountant.toUpperCase(), spent: up(budget.spent), left: down(budget.left), held: held > 1e-9 ? up(held) : null, each: budget.each === null ? null : up(budget.each) });
  if (budget.window !== null) $('budget-lead').textContent += ` ${t('budgetRenews', { weeks: num(budget.window, 0), total: up(budget.total) })}`;
  $('burn-note').textContent = `${t('burnNote')} ${budget.plan.length ? '' : t('burnNoPlan')}`;
  const today = dayOf(DATA.made);
  const left = (point) => [dayOf(point.day) * DAY, Math.max(0, budget.epsilon - point.epsilon)];
  const points = budget.points.map(left);
  const plan = budget.plan.map(left);
  const first = Math.min(...[...points, ...plan].map(([day]) => day / DAY), today - 7);
  const last = Math.max(...[...points, ...plan].map(([day]) => day / DAY), today) + 7;
  const begun = [[first * DAY, budget.epsilon], ...points, [today * DAY, Math.max(0, budget.epsilon - budget.spent)]];
  const { ink, soft, model, other } = INK();
  const names = [t('spentLine'), ...(plan.length ? [t('planned')] : [])];
  draw('burn', t('burnLabel', { left: down(budget.left), cap: eps(budget.epsilon) }), {
    grid: { left: 8, right: 20, top: legendHeight('burn', names) + 8, bottom: 4, containLabel: true },
    legend: chartLegend(names),
    tooltip: tooltip((items) => `<strong>${esc(longDay(items[0].value[0] / DAY))}</strong>${items.map((item) => `<br>${esc(item.seriesName)}: ε ${esc(down(item.value[1]))}`).join('')}`),
    xAxis: timeAxis(first, last),
    yAxis: valueAxis({ min: 0, max: budget.epsilon, interval: budget.epsilon / 4, name: 'ε', nameTextStyle: { color: ink, fontSize: 13 }, axisLabel: { ...axisText(), formatter: (v) => eps(v) } }),
    series: [
      { type: 'line', name: names[0], step: 'end', data: begun, symbol: 'none', lineStyle: { color: model, width: 2.5 }, itemStyle: { color: model }, areaStyle: { color: model, opacity: 0.08 }, markLine: { silent: true, symbol: 'none', animation: false, lineStyle: { color: soft, type: 'dotted' }, label: { show: false }, data: [{ xAxis: today * DAY }] } },
      ...(plan.length ? [{ type: 'line', name: names[1], data: [[first * DAY, budget.epsilon], ...plan], symbol: 'none', lineStyle: { color: other, width: 1.75, type: 'dashed' }, itemStyle: { color: other } }] : []),
    ],
  });
  const spent = new Map(budget.points.map((one) => [one.day, one.epsilon]));
  const planned = new Map(budget.plan.map((one) => [one.day, one.epsilon]));
  const days = [...new Set([...spent.keys(), ...planned.keys()])].sort();
  const shown = (found, day) => (found.has(day) ? down(Math.max(0, budget.epsilon - found.get(day))) : '–');
  behind('burn-table', () => table({
    caption: t('budgetTitle'),
    heads: [t('dayHead'), { text: t('leftHead'), number: true }, { text: t('planHead'), number: true }],
    rows: days.map((day) => [tableDay(dayOf(day)), shown(spent, day), shown(planned, day)]),
  }));
}
