// The text on a sheet of A4 in pixels, as the print stylesheet has it.
const PAPER = { width: 680, map: 345 };

function drawFrame() {
  for (const id of ['privacy', 'baselines']) $(id).hidden = ALONE;
  $('appendix').hidden = !(GRID && federated(gridCell()).length);
  drawControls();
  [...$('contents').children].forEach((item) => { item.hidden = $(item.firstChild.hash.slice(1)).hidden; });
  const title = DATA.title || t('title');
  document.title = `${title} – ${longDay(AS_OF)}`;
  $('title').textContent = title;
  $('subtitle').textContent = t('subtitle', { day: longDay(AS_OF), count: num(COUNT, 0), level: spoken() });
  const labels = [];
  if (DATA.simulated) labels.push(['simulatedLabel', 'simulatedText']);
  if (DATA.seeded) labels.push(['seededLabel', 'seededText']);
  if (!DATA.same_data) labels.push(['otherDataLabel', 'otherDataText']);
  $('labels').replaceChildren(...labels.map(([head, text]) => make('p', { class: 'label', role: 'note' }, make('strong', {}, t(head)), ' ', t(text))));
  $('search').placeholder = t('searchHint', { count: num(COUNT, 0), level: spoken() });
}

function drawTools() {
  const measures = ['now', ...(FORECAST ? ['forecast'] : []), ...(FORECAST || HISTORY ? ['change'] : [])];
  if (!measures.includes(state.measure)) [state.measure] = measures;
  const legend = $('measures').firstElementChild;
  $('measures').replaceChildren(legend, ...measures.map((name) => make('label', {}, make('input', { type: 'radio', name: 'measure', value: name, checked: name === state.measure, onchange: () => { state.measure = name; drawTools(); drawMap(); } }), make('span', {}, t(name)))));
  const timed = FORECAST && state.measure !== 'now';
  $('week-pick').hidden = !FORECAST || WEEKS.length < 2 || !timed;
  $('week').replaceChildren(...WEEKS.map((at, i) => make('option', { value: i, selected: i === state.week }, ahead(at))));
  $('sure-pick').hidden = !(timed && state.measure === 'change');
  $('sure').checked = state.sure;
}

function drawFirst() {
  drawFrame();
  drawOverview();
  drawTools();
  drawMap();
  drawRegion();
}

function drawRest() {
  drawRecord();
  drawPrivacy();
  drawBaselines();
  drawAbout();
}

function drawAll() {
  drawFirst();
  drawRest();
}

function setUp() {
  setUpControls(drawAll);
  // A forecast that changes every region alike is better seen as values than as changes.
  const changes = FORECAST ? NAMES.map((_, i) => change(i, NEXT)).filter((v) => v !== null).sort((a, b) => a - b) : [];
  const spread = changes.length ? changes[Math.floor(0.9 * changes.length)] - changes[Math.floor(0.1 * changes.length)] : 0;
  state.measure = !FORECAST ? 'now' : spread > 0.05 ? 'change' : 'forecast';
  if (GRID) {
    const temporal = GRID.cells.map((cell) => cell.split).lastIndexOf('temporal');
    state.cell = Math.max(0, temporal);
    state.epsilon = firstBudget(gridCell());
  }
  foldOnPhones();
  const grown = growing();
  if (grown.length) state.region = grown[0].i;
  drawFirst();
  setUpSearch();
  $('print').addEventListener('click', () => window.print());
  $('week').addEventListener('change', () => { state.week = Number($('week').value); drawMap(); drawRegion(); });
  $('sure').addEventListener('change', () => { state.sure = $('sure').checked; drawMap(); });
  $('cell').addEventListener('change', () => {
    state.cell = Number($('cell').value);
    state.epsilon = Math.min(state.epsilon, federated(gridCell()).length - 1);
    drawPrivacy();
    drawBaselines();
  });
  $('epsilon').addEventListener('input', () => {
    state.epsilon = Number($('epsilon').value);
    drawBudget();
    if (!BACKTEST) drawPast(state.region);
  });
  const fit = (size, all) => charts.forEach((chart, id) => {
    if (!all && chart.getWidth() === $(id).clientWidth) return;
    if (id === 'map') resizeMap(size(id));
    else chart.resize(size(id));
    chart.getZr().flush();
  });
  const resize = () => fit(() => ({ width: 'auto', height: 'auto' }));
  new ResizeObserver(resize).observe($('main'));
  // On paper always light, and as wide as the sheet.
  let dark = false;
  window.addEventListener('beforeprint', () => {
    dark = state.dark;
    state.dark = false;
    if (dark) drawAll();
    fit((id) => ({ width: PAPER.width, height: id === 'map' ? PAPER.map : 'auto' }), true);
  });
  window.addEventListener('afterprint', () => {
    state.dark = dark;
    if (dark) drawAll();
    resize();
  });
  // What is further down can wait until the first screen has been painted.
  requestAnimationFrame(() => setTimeout(() => {
    drawRest();
    if (location.hash.length > 1) $(location.hash.slice(1))?.scrollIntoView();
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
  }));
}

// On a phone what is further down opens at its title.
function foldOnPhones() {
  const narrow = window.matchMedia('(max-width: 560px)').matches;
  if (!narrow) return;
  for (const id of ['record', 'privacy', 'baselines', 'method', 'sources', 'appendix']) {
    const section = $(id);
    const title = section.querySelector('h2');
    const turn = (open) => { section.classList.toggle('folded', !open); title.setAttribute('aria-expanded', String(open)); };
    title.setAttribute('role', 'button');
    title.setAttribute('tabindex', '0');
    turn(location.hash === `#${id}`);
    title.addEventListener('click', () => turn(section.classList.contains('folded')));
    title.addEventListener('keydown', (event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); turn(section.classList.contains('folded')); } });
    window.addEventListener('hashchange', () => { if (location.hash === `#${id}`) turn(true); });
    window.addEventListener('beforeprint', () => turn(true));
  }
}

setUp();
