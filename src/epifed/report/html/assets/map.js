const MOST_TILES = 400;

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

function mapTooltip(region) {
  const rows = lines(region).map(([label, value]) => `<tr><th>${esc(label)}</th><td>${esc(value)}</td></tr>`).join('');
  return `<strong>${esc(NAMES[region])}</strong><table class="tip">${rows}</table>`;
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
  drawShapes(COUNT, state.region, select, (region) => colourOf(shown(region)), mapTooltip);
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
