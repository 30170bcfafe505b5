// A map of regions and its colours, for the report and for the page of an office.
// ColorBrewer BuPu and BrBG: both are safe for colour-blind readers. In the dark, low is dark.
const SEQUENTIAL = ['#edf4f9', '#cbdcec', '#a6bddb', '#8c96c6', '#8c6bb1', '#88419d', '#5c0a5f'];
const SEQUENTIAL_DARK = ['#2a2d3f', '#3d3f63', '#565296', '#7a66b8', '#a07fd0', '#c7a3e4', '#f0d6fb'];
const DIVERGING = ['#01665e', '#5ab4ac', '#b5ddd8', '#eeeeea', '#f0d9a7', '#d8a24b', '#99560b'];
const DIVERGING_DARK = ['#6fe0d2', '#2f9c91', '#22605a', '#3a3d42', '#6b5222', '#b0772a', '#f3b455'];
const CHANGES = [-0.5, -0.25, -0.1, 0.1, 0.25, 0.5];
const NICE = [0.5, 1, 2, 5, 10, 25, 35, 50, 75, 100, 150, 200, 250, 300, 400, 500, 750, 1000, 1500, 2000, 2500, 3000, 4000, 5000, 7500, 10000, 20000, 50000, 1e5, 1e6];

// Round borders near the sevenths of all values.
function niceBreaks(all) {
  const values = all.filter((v) => v !== null).sort((a, b) => a - b);
  if (!values.length) return [1, 2, 5, 10, 25, 50];
  const found = [];
  for (let k = 1; k < 7; k += 1) {
    const wanted = values[Math.floor((k * values.length) / 7)];
    const free = NICE.filter((n) => !found.length || n > found[found.length - 1]);
    found.push(free.reduce((best, n) => (Math.abs(Math.log(n / wanted)) < Math.abs(Math.log(best / wanted)) ? n : best)));
  }
  return found;
}

function classColour(value, { breaks, colours }) {
  let k = 0;
  while (k < breaks.length && value >= breaks[k]) k += 1;
  return colours[k];
}

function classNames({ breaks, colours, text }) {
  const label = (k) => (k === 0 ? t('below', text(breaks[0])) : k === breaks.length ? t('above', text(breaks[k - 1])) : `${text(breaks[k - 1])} – ${text(breaks[k])}`);
  return colours.map((colour, k) => [colour, label(k)]);
}

function showLegend(entries, words) {
  $('legend').replaceChildren(make('ul', {}, entries.map(([colour, name]) => {
    const swatch = make('i', {});
    swatch.style.background = colour;
    return make('li', {}, swatch, name);
  })), make('span', {}, words));
}

const key = (region) => `r${region}`;
let mapChart = null;
let CENTRES = null;
let MAP_BOX = null;
let onMap = {};

// Whole steps on a grid back to a GeoJSON that the charting library takes.
function decoded({ origin, step, shapes }) {
  CENTRES = [];
  const ring = (flat) => {
    let [x, y] = [0, 0];
    const points = [];
    for (let i = 0; i < flat.length; i += 2) {
      x += flat[i];
      y += flat[i + 1];
      points.push([origin[0] + x * step[0], origin[1] + y * step[1]]);
    }
    points.push(points[0]);
    return points;
  };
  const features = shapes.map((polygons, i) => {
    const coordinates = polygons.map((rings) => rings.map(ring));
    const largest = coordinates.reduce((a, b) => (area(b[0]) > area(a[0]) ? b : a));
    CENTRES.push(centre(largest[0]));
    return { type: 'Feature', properties: { name: key(i) }, geometry: { type: 'MultiPolygon', coordinates } };
  });
  const corners = features.flatMap((f) => f.geometry.coordinates.flatMap((rings) => rings[0]));
  MAP_BOX = [0, 1].map((axis) => corners.reduce(([low, high], p) => [Math.min(low, p[axis]), Math.max(high, p[axis])], [Infinity, -Infinity]));
  return { type: 'FeatureCollection', features };
}

function area(ring) {
  let sum = 0;
  for (let i = 1; i < ring.length; i += 1) sum += ring[i - 1][0] * ring[i][1] - ring[i][0] * ring[i - 1][1];
  return Math.abs(sum) / 2;
}

function centre(ring) {
  let [x, y, sum] = [0, 0, 0];
  for (let i = 1; i < ring.length; i += 1) {
    const cross = ring[i - 1][0] * ring[i][1] - ring[i][0] * ring[i - 1][1];
    x += (ring[i - 1][0] + ring[i][0]) * cross;
    y += (ring[i - 1][1] + ring[i][1]) * cross;
    sum += cross;
  }
  return sum ? [x / (3 * sum), y / (3 * sum)] : ring[0];
}

// As large as fits without being stretched.
function mapLayout() {
  const [width, height] = [mapChart.getWidth() - 8, mapChart.getHeight() - 8];
  const [xs, ys] = [0, 1].map((axis) => MAP_BOX[axis][1] - MAP_BOX[axis][0]);
  const ratio = (xs * onMap.aspect) / ys;
  return { layoutCenter: ['50%', '50%'], layoutSize: ratio < 1 ? Math.min(height, width / ratio) : Math.min(width, height * ratio) };
}

function resizeMap(size) {
  mapChart.resize(size);
  mapChart.setOption({ series: [{ id: 'map', ...mapLayout() }] });
}

// The regions of DATA.map, each in its colour; a click or a key chooses one.
function drawShapes(count, selected, choose, colour, describe) {
  const fresh = onMap.map !== DATA.map;
  const aspect = DATA.map.aspect;
  onMap = { map: DATA.map, aspect, selected, choose };
  if (fresh) echarts.registerMap('country', decoded(DATA.map));
  if (!mapChart) {
    mapChart = echarts.init($('map'), null, { renderer: count > 2000 ? 'canvas' : 'svg' });
    charts.set('map', mapChart);
    mapChart.on('click', (event) => { if (event.name) onMap.choose(Number(event.name.slice(1))); });
    $('map').addEventListener('wheel', (event) => {
      if (document.activeElement !== $('map') && !event.ctrlKey && !event.metaKey) event.stopPropagation();
    }, { capture: true });
    $('map').addEventListener('keydown', mapKey);
    $('map').addEventListener('pointerdown', () => $('map').focus({ preventScroll: true }));
    $('zoom-in').addEventListener('click', () => zoomTo(1.6));
    $('zoom-out').addEventListener('click', () => zoomTo(1 / 1.6));
    $('zoom-reset').addEventListener('click', () => zoomTo(0));
  }
  const border = css('--border');
  const strong = css('--ink');
  const width = count > 2000 ? 0.1 : 0.5;
  const words = (item) => {
    const region = Number(String(item.name).slice(1));
    return Number.isInteger(region) && region < count ? describe(region) : '';
  };
  mapChart.setOption({
    animation: false,
    tooltip: { trigger: 'item', confine: true, formatter: words, backgroundColor: css('--card'), borderColor: css('--line'), textStyle: { color: strong, fontSize: 13 } },
    series: [{
      id: 'map', type: 'map', map: 'country', roam: true, scaleLimit: { min: 1, max: 40 }, aspectScale: aspect,
      ...mapLayout(), selectedMode: false,
      label: { show: false }, emphasis: { label: { show: false }, itemStyle: { areaColor: null, borderColor: strong, borderWidth: 1.5 } },
      itemStyle: { borderColor: border, borderWidth: width },
      data: Array.from({ length: count }, (_, i) => {
        const chosen = i === selected;
        const style = { areaColor: colour(i), borderColor: chosen ? css('--mark') : border, borderWidth: chosen ? 2 : width };
        return { name: key(i), value: i, itemStyle: style, z2: chosen ? 10 : 0, emphasis: { itemStyle: { areaColor: style.areaColor } } };
      }),
      ...(fresh ? { zoom: 1, center: null } : {}),
    }],
  }, fresh);
}

function zoomTo(factor, centreAt) {
  if (!mapChart) return;
  const series = mapChart.getOption().series[0];
  const zoom = factor === 0 ? 1 : Math.min(40, Math.max(1, (series.zoom || 1) * factor));
  const middle = factor === 0 ? null : centreAt || (factor > 1 && zoom > 1 && !series.center ? CENTRES[onMap.selected] : series.center);
  mapChart.setOption({ series: [{ id: 'map', zoom, center: zoom === 1 ? null : middle }] });
}

// Arrow keys go to the nearest neighbour that lies that way.
function mapKey(event) {
  const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
  if (way) {
    const [x, y] = CENTRES[onMap.selected];
    const cost = (c) => {
      const [dx, dy] = [(c[0] - x) * onMap.aspect, c[1] - y];
      const along = dx * way[0] + dy * way[1];
      const aside = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
      return along > 1e-9 ? along + 2 * aside : Infinity;
    };
    const best = CENTRES.reduce((found, c, i) => (i !== onMap.selected && cost(c) < cost(CENTRES[found] ?? [NaN, NaN]) ? i : found), -1);
    if (best >= 0) onMap.choose(best);
  } else if (event.key === '+') zoomTo(1.6, CENTRES[onMap.selected]);
  else if (event.key === '-') zoomTo(1 / 1.6);
  else if (event.key === '0') zoomTo(0);
  else return;
  event.preventDefault();
}
