function drawLabels() {
  $('labels').replaceChildren(...(shown.lost ? [make('p', { class: 'label' }, make('strong', {}, t('lost')), ' ', t('lostText'))] : []));
}

function drawContents() {
  const names = t('nav');
  const there = Object.keys(names).filter((id) => !$(id).hidden);
  $('contents').replaceChildren(...(there.length > 1 ? there : []).map((id) => make('li', {}, make('a', { href: `#${id}` }, names[id]))));
}

function drawAll() {
  if (DATA.check && DATA.check.names.length === 1) shown.region = 0;
  drawControls();
  $('title').textContent = t('title');
  $('subtitle').textContent = t('subtitle');
  $('made').textContent = t('made', { version: DATA.version ?? '' });
  document.title = DATA.file ? `${DATA.file.name} – epifed` : t('title');
  $('print').hidden = !DATA.forecast;
  drawLabels();
  drawFile();
  drawQuestion();
  drawTable();
  drawCheck();
  drawForecast();
  drawMember();
  drawContents();
  document.documentElement.dataset.ready ??= 'yes';
}

function resized(chart, id, size) {
  if (id === 'map') resizeMap(size);
  else chart.resize(size);
}

// On paper charts are as wide as its text, as high as app.css says, and light. They are drawn at once: printing does not wait.
const PAPER = { width: 680, counts: 170, fan: 210, nowcast: 150, reproduction: 150 };
let dark = false;
function printing() {
  dark = state.dark;
  if (dark) {
    state.dark = false;
    drawAll();
  }
  charts.forEach((chart, id) => {
    if ($(id).closest('[hidden]')) return;
    resized(chart, id, { width: PAPER.width, height: PAPER[id] ?? 'auto' });
    chart.getZr().flush();
  });
}
function printed() {
  state.dark = dark;
  if (dark) drawAll();
  charts.forEach((chart, id) => resized(chart, id, { width: 'auto', height: 'auto' }));
}

setUpControls(drawAll);
setUpFile();
setUpForecast();
$('print').addEventListener('click', () => window.print());
window.addEventListener('beforeprint', printing);
window.addEventListener('afterprint', printed);
new ResizeObserver(() => charts.forEach((chart, id) => { if (chart.getWidth() !== $(id).clientWidth && $(id).clientWidth) resized(chart, id); })).observe($('main'));

ask('api/state').then((found) => {
  take(found);
  drawAll();
  if (DATA.file) settle();
});
