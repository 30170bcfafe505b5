// The last two weeks of a region: what is known, what will be once late reports are in, and R.
function drawNowcast(region) {
  $('nowcast-part').hidden = !NOWCAST;
  if (!NOWCAST) return;
  const { ink, soft, model } = INK();
  const days = NOWCAST.days.map(dayNumber);
  const of = (name) => NOWCAST[name][region];
  const total = (name) => of(name).slice(-7).reduce((sum, value) => sum + value, 0);
  const note = t('nowcastNote', { day: longDay(AS_OF), known: num(total('known'), 0), estimate: num(total('estimate'), 0) });
  $('nowcast-note').textContent = DATA.release?.since ? `${note} ${t('nowcastSince', { day: longDay(dayNumber(DATA.release.since)) })}` : DATA.release || BACKTEST.record.real_time ? note : `${note} ${t('nowcastFinal')}`;
  const line = (name, values) => ({ name, type: 'line', symbol: 'circle', symbolSize: 5, data: days.map((day, k) => [day * DAY, values[k]]), lineStyle: { color: model, width: 2 }, itemStyle: { color: model }, z: 4 });
  const tip = (rows) => tooltip((items) => {
    const k = days.indexOf(Math.round(items[0].value[0] / DAY));
    return `<strong>${esc(longDay(days[k]))}</strong><table class="tip">${rows(k).map(([a, b]) => `<tr><th>${esc(a)}</th><td>${esc(b)}</td></tr>`).join('')}</table>`;
  });
  const grid = (id, names) => ({ left: 8, right: 14, top: legendHeight(id, names), bottom: 4, containLabel: true });
  const range = (low, high, k, digits) => `${num(of(low)[k], digits)} – ${num(of(high)[k], digits)}`;
  const [known, estimate, wide] = [t('knownSoFar'), t('estimate'), t('band', 95)];
  draw('nowcast', `${t('nowcastTitle')}: ${NAMES[region]}. ${note}`, {
    grid: grid('nowcast', [known, estimate, wide]), legend: chartLegend([known, estimate], [wide]),
    tooltip: tip((k) => [[known, num(of('known')[k], 0)], [estimate, num(of('estimate')[k], 0)], [wide, range('lower', 'upper', k, 0)]]),
    xAxis: timeAxis(days[0] - 1, days[days.length - 1] + 1), yAxis: valueAxis({ min: 0 }),
    series: [
      { name: known, type: 'bar', barWidth: '60%', data: days.map((day, k) => [day * DAY, of('known')[k]]), itemStyle: { color: soft, opacity: 0.5 }, z: 1 },
      ...band(wide, days, of('lower'), of('upper'), 0.2, model, 2), line(estimate, of('estimate')),
    ],
  });
  draw('number', `${t('numberTitle')}: ${NAMES[region]}. ${t('estimate')}: ${num(of('r')[days.length - 1], 2)}`, {
    grid: grid('number', ['R', wide]), legend: chartLegend(['R'], [wide]),
    tooltip: tip((k) => [['R', num(of('r')[k], 2)], [wide, range('r_lower', 'r_upper', k, 2)]]),
    xAxis: timeAxis(days[0] - 1, days[days.length - 1] + 1), yAxis: valueAxis({ min: 0 }),
    series: [
      ...band(wide, days, of('r_lower'), of('r_upper'), 0.2, model, 2),
      { ...line('R', of('r')), markLine: { silent: true, symbol: 'none', animation: false, label: { show: false }, lineStyle: { color: ink, type: 'dashed', width: 1 }, data: [{ yAxis: 1 }] } },
    ],
  });
  behind('nowcast-table', () => table({
    caption: `${t('nowcastTitle')}: ${NAMES[region]}`,
    heads: [t('day'), ...[known, estimate, wide, 'R', `R, ${wide}`].map((text) => ({ text, number: true }))],
    rows: days.map((day, k) => [{ text: tableDay(day), sort: day }, num(of('known')[k], 0), num(of('estimate')[k], 0), range('lower', 'upper', k, 0), num(of('r')[k], 2), range('r_lower', 'r_upper', k, 2)]),
  }));
}
