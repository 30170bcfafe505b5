// A ratio to persistence: below 1 is better, about 1 is neither.
const better = (ratio) => (ratio === null || Math.abs(ratio - 1) < 0.005 ? '' : ratio < 1 ? 'good' : 'bad');

// An interval that holds far less than it says is as bad as a large error.
const held = (share, should) => (share === null ? '' : share < should - (1 - should) - 0.02 || share < should - 0.12 ? 'bad' : share < should - 0.05 ? '' : 'good');

function drawRecord() {
  $('record-charts').hidden = !BACKTEST;
  $('record-facts').hidden = !BACKTEST;
  if (!BACKTEST) {
    $('record-lead').textContent = t(DATA.release ? 'recordNotYet' : 'recordNone');
    return;
  }
  const { record, origins, all } = BACKTEST;
  const first = dayNumber(origins[0].origin_date);
  const last = dayNumber(origins[origins.length - 1].origin_date);
  $('record-lead').textContent = t(ALONE ? 'recordAlone' : 'recordLead', { learner: methodName(record.learner), eps: eps(record.epsilon_per_release), n: num(all.forecasts, 0), origins: num(origins.length, 0), first: longDay(first), last: longDay(last) });
  const [maeRatio, wisRatio] = [record.mae_ratio, record.wis_ratio];
  const list = [
    fact(t('maeRatio'), num(maeRatio, 2), t('belowOne'), better(maeRatio)),
    fact(t('wisRatio'), num(wisRatio, 2), t('belowOne'), better(wisRatio)),
    fact(t('c50'), percent(record.coverage_50), t('should', '50 %'), held(record.coverage_50, 0.5)),
    fact(t('c95'), percent(record.coverage_95), t('should', '95 %'), held(record.coverage_95, 0.95)),
  ];
  if (typeof record.worst_month_mae_ratio === 'number') list.push(fact(t('worstMonth'), num(record.worst_month_mae_ratio, 2), t('belowOne'), better(record.worst_month_mae_ratio)));
  for (const metric of METRICS) if (typeof record.metrics[metric.key] === 'number') list.push(fact(metricName(metric), num(record.metrics[metric.key])));
  facts('record-facts', ...list);
  drawOrigins(origins, first, last);
  const heads = [t('horizon'), t('forecasts'), t('maeRatio'), t('wisRatio'), t('c50'), t('c95')].map((text, i) => ({ text, number: i > 0 }));
  const rows = BACKTEST.horizons.map((row) => [String(row.days / STEP), num(row.forecasts, 0), num(row.mae_ratio, 2), num(row.wis_ratio, 2), percent(row.coverage_50), percent(row.coverage_95)]);
  $('horizons').replaceChildren(table({ caption: t('byHorizon'), heads, rows }));
}

function drawOrigins(origins, first, last) {
  const { model, other } = INK();
  const line = (name, score, colour, extra) => ({ name, type: 'line', symbol: 'circle', symbolSize: 4, showSymbol: origins.length < 80, data: origins.map((row) => [dayNumber(row.origin_date) * DAY, row[score]]), lineStyle: { color: colour, width: 2 }, itemStyle: { color: colour }, ...extra });
  draw('origins', `${t('recordChart')}. ${t('model')}: ${num(BACKTEST.all.mae, 1)}; ${t('persistence')}: ${num(BACKTEST.all.persistence_mae, 1)}`, {
    grid: { left: 8, right: 14, top: 34, bottom: 4, containLabel: true },
    legend: chartLegend([t('model'), t('persistence')]),
    tooltip: tooltip((items) => {
      const rows = items.map((item) => `<tr><th>${esc(item.seriesName)}</th><td>${esc(num(item.value[1], 1))}</td></tr>`).join('');
      return `<strong>${esc(longDay(items[0].value[0] / DAY))}</strong><table class="tip">${rows}</table>`;
    }),
    xAxis: timeAxis(first, Math.max(last, first + 1)), yAxis: valueAxis({ min: 0 }),
    series: [line(t('model'), 'mae', model), line(t('persistence'), 'persistence_mae', other, { lineStyle: { color: other, width: 1.5, type: 'dashed' }, symbol: 'diamond' })],
  });
  behind('origins-table', () => table({
    caption: t('recordChart'),
    heads: [t('origin'), { text: t('model'), number: true }, { text: t('persistence'), number: true }, { text: t('c95'), number: true }],
    rows: origins.map((row) => [tableDay(dayNumber(row.origin_date)), num(row.mae, 1), num(row.persistence_mae, 1), percent(row.coverage_95)]),
  }));
}
