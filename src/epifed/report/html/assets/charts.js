const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Charts are drawn anew when the language or the colours change.
const charts = new Map();

function draw(id, label, option) {
  const element = $(id);
  let chart = charts.get(id);
  if (!chart) {
    chart = echarts.init(element, null, { renderer: 'svg' });
    charts.set(id, chart);
  }
  element.setAttribute('aria-label', label);
  chart.setOption({ animation: false, textStyle: { fontFamily: css('--font') }, ...option }, true);
}

const INK = () => ({ ink: css('--ink'), soft: css('--soft'), line: css('--line'), paper: css('--card'), model: css('--model'), other: css('--other') });

function axisText() {
  return { color: css('--soft'), fontSize: 12, hideOverlap: true };
}

function timeAxis(min, max) {
  const label = (value) => shortDay(value / DAY);
  return {
    type: 'time', min: min * DAY, max: max * DAY, axisLine: { lineStyle: { color: css('--line') } }, axisTick: { show: false },
    splitLine: { show: false }, axisLabel: { ...axisText(), formatter: label }, splitNumber: 5,
  };
}

function valueAxis(extra) {
  return { type: 'value', axisLabel: { ...axisText(), formatter: (v) => num(v, v < 10 && !Number.isInteger(v) ? 1 : 0) }, splitLine: { lineStyle: { color: css('--line') } }, splitNumber: 4, ...extra };
}

function tooltip(formatter) {
  return { trigger: 'axis', confine: true, formatter, backgroundColor: css('--card'), borderColor: css('--line'), textStyle: { color: css('--ink'), fontSize: 13 }, axisPointer: { lineStyle: { color: css('--soft') } } };
}

// Room for a legend that wraps: words are taken to be so many pixels a letter wide.
function legendHeight(id, names) {
  const width = $(id).clientWidth - 10;
  let [rows, used] = [1, 0];
  for (const name of names) {
    const needed = 40 + 6.4 * name.length;
    if (used && used + needed > width) [rows, used] = [rows + 1, 0];
    used += needed;
  }
  return 12 + 23 * rows;
}

const chartLegend = (names, bands = []) => ({ top: 0, left: 0, itemWidth: 18, itemHeight: 9, itemGap: 14, data: [...names, ...bands.map((name) => ({ name, icon: 'roundRect' }))], textStyle: { color: css('--ink'), fontSize: 12 }, selectedMode: false });

const points = (pairs) => pairs.map(([day, value]) => [day * DAY, value]);

// A band is an unseen line at its lower end and, stacked on it, the height to the upper end.
function band(name, days, low, high, opacity, colour, z) {
  const base = { type: 'line', stack: name, stackStrategy: 'all', symbol: 'none', silent: true, lineStyle: { opacity: 0 }, z };
  return [
    { ...base, name: `${name} base`, data: days.map((day, k) => [day * DAY, low[k]]), tooltip: { show: false } },
    { ...base, name, data: days.map((day, k) => [day * DAY, low[k] === null ? null : high[k] - low[k]]), areaStyle: { color: colour, opacity }, itemStyle: { color: colour, opacity: Math.min(1, opacity + 0.15) } },
  ];
}
