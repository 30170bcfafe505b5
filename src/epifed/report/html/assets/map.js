const MOST_TILES = 400;
const key = (region) => `r${region}`;
let mapChart = null;
let CENTRES = null;
let MAP_BOX = null;

// Whole steps on a grid back to a GeoJSON that the charting library takes.
function decoded() {
  const { origin, step, shapes } = DATA.map;
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

function mapTitle() {
  const at = WEEKS[state.week] ?? null;
  const day = longDay(state.measure === 'now' || at === null ? AS_OF : horizonDay(at));
  const words = { day, name: measureName(), lower: measureLower() };
  if (state.measure === 'now') return t('mapNow', words);
  if (state.measure === 'forecast') return t('mapForecast', words);
  return t(at === null ? 'mapChanged' : 'mapChange', words);
}

// What a pointer over a region, or a screen reader on it, is told.
function lines(region) {
  const at = WEEKS[state.week] ?? null;
  const found = [[t('now'), `${amount(rate(region, NOW[region]))} ${unit()}`]];
  if (at !== null) {
    const [low, mid, high] = [LEVEL.low95, LEVEL.median, LEVEL.high95].map((k) => amount(rate(region, quantile(k, region, at))));
    found.push([t('expected', { when: ahead(at) }), `${mid} (${low} – ${high})`], [t('probability'), chance(chanceOfRise(region, at))]);
  }
  if (change(region, at) !== null) found.push([t('change'), signed(change(region, at))]);
  return found;
}

function mapTooltip(item) {
  const region = Number(String(item.name).slice(1));
  if (!Number.isInteger(region) || !(region in NAMES)) return '';
  const rows = lines(region).map(([label, value]) => `<tr><th>${esc(label)}</th><td>${esc(value)}</td></tr>`).join('');
  return `<strong>${esc(NAMES[region])}</strong><table class="tip">${rows}</table>`;
}

// As large as fits without being stretched.
function mapLayout() {
  const [width, height] = [mapChart.getWidth() - 8, mapChart.getHeight() - 8];
  const [xs, ys] = [0, 1].map((axis) => MAP_BOX[axis][1] - MAP_BOX[axis][0]);
  const ratio = (xs * DATA.map.aspect) / ys;
  return { layoutCenter: ['50%', '50%'], layoutSize: ratio < 1 ? Math.min(height, width / ratio) : Math.min(width, height * ratio) };
}

function resizeMap(size) {
  mapChart.resize(size);
  mapChart.setOption({ series: [{ id: 'map', ...mapLayout() }] });
}

function drawMap() {
  $('map-title').textContent = mapTitle();
  drawLegend();
  behind('map-table', regionTable);
  if (!DATA.map) {
    drawTiles();
    return;
  }
  $('map-hint').textContent = t('mapHint');
  $('map').setAttribute('aria-label', t('mapLabel', { title: mapTitle() }));
  const fresh = !mapChart;
  if (fresh) {
    echarts.registerMap('country', decoded());
    mapChart = echarts.init($('map'), null, { renderer: COUNT > 2000 ? 'canvas' : 'svg' });
    charts.set('map', mapChart);
    mapChart.on('click', (event) => { if (event.name) select(Number(event.name.slice(1))); });
    $('map').addEventListener('wheel', (event) => {
      if (document.activeElement !== $('map') && !event.ctrlKey && !event.metaKey) event.stopPropagation();
    }, { capture: true });
    $('map').addEventListener('keydown', mapKey);
    $('map').addEventListener('pointerdown', () => $('map').focus({ preventScroll: true }));
  }
  const border = css('--border');
  const strong = css('--ink');
  const width = COUNT > 2000 ? 0.1 : 0.5;
  mapChart.setOption({
    animation: false,
    tooltip: { trigger: 'item', confine: true, formatter: mapTooltip, backgroundColor: css('--card'), borderColor: css('--line'), textStyle: { color: strong, fontSize: 13 } },
    series: [{
      id: 'map', type: 'map', map: 'country', roam: true, scaleLimit: { min: 1, max: 40 }, aspectScale: DATA.map.aspect,
      ...mapLayout(), selectedMode: false,
      label: { show: false }, emphasis: { label: { show: false }, itemStyle: { areaColor: null, borderColor: strong, borderWidth: 1.5 } },
      itemStyle: { borderColor: border, borderWidth: width },
      data: NAMES.map((_, i) => {
        const chosen = i === state.region;
        const style = { areaColor: colourOf(shown(i)), borderColor: chosen ? css('--mark') : border, borderWidth: chosen ? 2 : width };
        return { name: key(i), value: i, itemStyle: style, z2: chosen ? 10 : 0, emphasis: { itemStyle: { areaColor: style.areaColor } } };
      }),
      ...(fresh ? { zoom: 1 } : {}),
    }],
  });
}

function zoomTo(factor, centreAt) {
  if (!mapChart) return;
  const series = mapChart.getOption().series[0];
  const zoom = factor === 0 ? 1 : Math.min(40, Math.max(1, (series.zoom || 1) * factor));
  const middle = factor === 0 ? null : centreAt || (factor > 1 && zoom > 1 && !series.center ? CENTRES[state.region] : series.center);
  mapChart.setOption({ series: [{ id: 'map', zoom, center: zoom === 1 ? null : middle }] });
}

// Arrow keys go to the nearest neighbour that lies that way.
function mapKey(event) {
  const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
  if (way) {
    const [x, y] = CENTRES[state.region];
    const cost = (c) => {
      const [dx, dy] = [(c[0] - x) * DATA.map.aspect, c[1] - y];
      const along = dx * way[0] + dy * way[1];
      const aside = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
      return along > 1e-9 ? along + 2 * aside : Infinity;
    };
    const best = CENTRES.reduce((found, c, i) => (i !== state.region && cost(c) < cost(CENTRES[found] ?? [NaN, NaN]) ? i : found), -1);
    if (best >= 0) select(best);
  } else if (event.key === '+') zoomTo(1.6, CENTRES[state.region]);
  else if (event.key === '-') zoomTo(1 / 1.6);
  else if (event.key === '0') zoomTo(0);
  else return;
  event.preventDefault();
}

function drawTiles() {
  document.querySelector('.map-frame').hidden = true;
  $('tiles').hidden = false;
  const order = NAMES.map((_, i) => i).sort((a, b) => (shown(b).value ?? -Infinity) - (shown(a).value ?? -Infinity));
  const { text } = scale();
  $('tiles').replaceChildren(...order.slice(0, MOST_TILES).map((i) => {
    const stripe = make('i', {});
    stripe.style.background = colourOf(shown(i));
    return make('button', { type: 'button', class: 'tile', 'aria-pressed': String(i === state.region), onclick: () => select(i) }, stripe, make('span', {}, NAMES[i]), make('b', {}, text(shown(i).value)));
  }));
  $('map-hint').textContent = t('tileHint') + (COUNT > MOST_TILES ? ` ${t('moreTiles', { n: MOST_TILES })}` : '');
}

function setUpSearch() {
  const [input, list] = [$('search'), $('found')];
  let found = [];
  let active = -1;
  const close = () => {
    list.hidden = true;
    active = -1;
    input.setAttribute('aria-expanded', 'false');
    input.removeAttribute('aria-activedescendant');
  };
  const choose = (region) => {
    input.value = NAMES[region];
    close();
    select(region);
    if (mapChart) zoomTo(COUNT > 30 ? 1.0001 : 1, CENTRES[region]);
  };
  const mark = () => {
    [...list.children].forEach((item, i) => item.setAttribute('aria-selected', String(i === active)));
    if (active >= 0) input.setAttribute('aria-activedescendant', `found-${active}`);
    else input.removeAttribute('aria-activedescendant');
  };
  const open = () => {
    found = search(input.value);
    active = found.length ? 0 : -1;
    list.hidden = !input.value.trim();
    input.setAttribute('aria-expanded', String(!list.hidden));
    list.replaceChildren(...(found.length ? found.map((region, i) => make('li', { role: 'option', id: `found-${i}`, onmousedown: (event) => { event.preventDefault(); choose(region); } },
      make('span', {}, NAMES[region]), make('small', {}, DATA.regions.groups ? DATA.regions.groups[region] || '' : ''))) : [make('li', { class: 'none' }, t('noneFound'))]));
    mark();
  };
  input.addEventListener('input', open);
  input.addEventListener('blur', close);
  input.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') close();
    else if (event.key === 'Enter' && active >= 0) choose(found[active]);
    else if ((event.key === 'ArrowDown' || event.key === 'ArrowUp') && found.length) {
      active = (active + (event.key === 'ArrowDown' ? 1 : found.length - 1)) % found.length;
      mark();
    } else return;
    event.preventDefault();
  });
}

function regionTable() {
  const heads = [spoken().one, DATA.regions.groups ? t('group')[DATA.level] : null, PEOPLE ? { text: t('people'), number: true } : null, { text: `${t('now')}, ${unit()}`, number: true }];
  const at = NEXT === null ? null : WEEKS[state.week];
  if (at !== null) heads.push({ text: `${t('forecast')} (${ahead(at)})`, number: true }, { text: t('interval95'), number: true }, { text: t('probability'), number: true });
  heads.push({ text: t('change'), number: true });
  const rows = NAMES.map((name, i) => {
    const open = make('button', { type: 'button', class: 'link', onclick: () => select(i, true) }, name);
    const row = [{ text: open, sort: name }, DATA.regions.groups ? DATA.regions.groups[i] : null, PEOPLE ? { text: num(PEOPLE[i], 0), sort: PEOPLE[i] } : null, sortable(rate(i, NOW[i]), amount)];
    if (at !== null) {
      const [low, mid, high] = [LEVEL.low95, LEVEL.median, LEVEL.high95].map((k) => rate(i, quantile(k, i, at)));
      row.push(sortable(mid, amount), { text: `${amount(low)} – ${amount(high)}`, sort: high - low }, sortable(chanceOfRise(i, at), chance));
    }
    row.push(sortable(change(i, at), signed));
    return row;
  });
  const kept = heads.map((head) => head !== null);
  const clean = (row) => row.filter((_, k) => kept[k]);
  return table({ caption: t('regionTable'), heads: clean(heads), rows: rows.map(clean), sortable: true });
}
