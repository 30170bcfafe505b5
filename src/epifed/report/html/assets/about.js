function drawBaselines() {
  const cell = GRID && gridCell();
  const like = cell && persistenceOf(cell);
  $('baselines-details').hidden = !cell;
  drawCompared();
  if (!cell) {
    $('baselines-lead').textContent = DATA.compared.length ? '' : t('baselinesNone');
    return;
  }
  const told = (rows) => rows.map((row) => `ε = ${eps(row.epsilon)} (${num(overPersistence(cell, row))} ×)`).join(', ');
  const wins = federated(cell).filter((row) => overPersistence(cell, row) < 1);
  const losses = federated(cell).filter((row) => overPersistence(cell, row) >= 1);
  const verdict = like && !like.mean.mae ? 'baselinesNothing' : !wins.length ? 'baselinesLose' : losses.length ? 'baselinesMixed' : 'baselinesWin';
  $('baselines-lead').textContent = `${cellName(cell)}: ${like ? t(verdict, { learner: gridLearner(), wins: told(wins), losses: told(losses) }) : ''}`;
  const better = (row) => like && row !== like && row.mean.mae < like.mean.mae;
  const value = (row, { key: name, better: way }) => {
    const text = way === 'higher' ? share : num;
    return text(row.mean[name]) + (row.std[name] === null ? '' : ` ± ${text(row.std[name])}`);
  };
  const heads = [t('method'), t('epsilon'), ...METRICS.map((m) => ({ text: metricName(m), number: true })), t('beats')];
  const rows = cell.rows.map((row) => [methodName(row.method), row.epsilon === null ? '' : eps(row.epsilon), ...METRICS.map((m) => ({ text: value(row, m), sort: row.mean[m.key] })), row === like ? '' : better(row) ? '✓' : '✗']);
  const name = t('methods').persistence;
  $('baselines-table').setAttribute('tabindex', '0');
  $('baselines-table').replaceChildren(table({ caption: `${t('baselinesTitle')}: ${cellName(cell)}`, heads, rows, mark: (row) => (row[0] === name ? 'mark' : row[1] !== '' ? 'own' : null) }));
  $('baselines-note').textContent = t('baselinesNote', { error: t('meanError', { horizon: HORIZON }), zeros: cell.zeros && num(cell.zeros, 0), smoothing: t('smoothing')[DATA.settings.smoothing] });
}

// Every learner beside "like today": the error, the interval score, the coverage.
function drawCompared() {
  const heads = [t('method'), t('epsilon'), ...[t('maeRatio'), t('wisRatio'), t('c95')].map((text) => ({ text, number: true }))];
  const ratio = (value) => (value === null ? '–' : num(value, value < 10 ? 2 : 0));
  const kinds = ['weekly', 'experiment'].filter((kind) => DATA.compared.some((row) => row.kind === kind));
  $('compared').replaceChildren(...kinds.map((kind) => {
    const rows = DATA.compared.filter((row) => row.kind === kind).map((row) => [methodName(row.method), row.epsilon === null ? '' : eps(row.epsilon), ratio(row.error), ratio(row.interval_score), row.coverage === null ? '–' : percent(row.coverage)]);
    const days = kind === 'weekly' ? t('comparedWeekly', { n: num(BACKTEST.record.origins, 0) }) : t('comparedExperiment', { cell: cellName(GRID.cells[GRID.cells.length - 1]) });
    return make('div', { class: 'scroll', tabindex: '0' }, table({ caption: days, heads, rows, mark: (row) => (row[1] === '' ? (row[0] === methodName('persistence') ? 'mark' : null) : 'own') }));
  }), make('p', { class: 'note' }, kinds.length ? t('comparedNote') : ''));
}

// Addresses in an attribution become links; the map's must lead to its maker.
function linked(text) {
  const parts = text.split(/(https?:\/\/[^\s,;)]+)/);
  return parts.map((part) => (/^https?:\/\//.test(part) ? make('a', { href: part, rel: 'noreferrer' }, part) : part));
}

function credit(line) {
  if (DATA.simulated && /made by epifed simulate, /.test(line)) return [t('simulatedSource', { made: line.split('epifed simulate, ')[1] })];
  if (!/GeoBasis-DE \/ BKG/.test(line)) return linked(line);
  return [make('a', { href: 'http://www.bkg.bund.de', rel: 'noreferrer' }, t('bkg')), ', ', make('a', { href: 'https://www.govdata.de/dl-de/by-2-0', rel: 'noreferrer' }, 'dl-de/by-2-0')];
}

function drawAbout() {
  const level = spoken();
  const s = DATA.settings;
  const experiment = GRID ? t('methodText', { level, windows: t('methodWindows', { window: s.window, horizon: s.horizon }) }) : '';
  const trend = ['trend', 'real-time', 'nowcast'].includes(LEARNER);
  const made = ALONE ? t('methodAlone', { level }) : trend ? t('methodTrend', { level }) : experiment || t('methodPlain', { level });
  const since = !NOWCAST && DATA.release?.since ? ` ${t('nowcastSince', { day: longDay(dayNumber(DATA.release.since)) })}` : '';
  $('method-text').textContent = made === experiment || !experiment ? made + since : `${made} ${t('methodExperiment', { learner: gridLearner() })} ${experiment}`;
  $('limits').replaceChildren(...(ALONE ? t('limitsAlone') : t('limits', { level, trust: t('trust')[DATA.settings.noise] })).map((text) => make('li', {}, text)));
  $('sources-list').replaceChildren(...(DATA.attribution.length ? DATA.attribution.map((line) => make('li', {}, credit(line))) : [make('li', {}, t('sourcesNone'))]));
  const mapLine = DATA.map && (DATA.attribution.find((line) => /BKG/.test(line)) || (DATA.simulated ? t('simulatedLabel') : null));
  $('map-credit').replaceChildren(...(mapLine ? [t('mapCredit'), ...credit(mapLine)] : []));
  const m = DATA.manifest;
  const versions = [];
  versions.push(t('versionLine', { version: m.epifed, finished: longDay(dayNumber(m.finished)), seed: m.seed }));
  versions.push(t('dataLine', { source: DATA.source, sha: m.data_sha256 }));
  versions.push(t('librariesLine', { list: Object.entries(m.versions).map((pair) => pair.join(' ')).join(', '), echarts: echarts.version }));
  $('versions').replaceChildren(...versions.map((text) => make('p', { class: 'note hash' }, text)));
  behind('settings-table', () => table({ caption: t('allSettings'), heads: [t('setting'), t('value')], rows: Object.entries(s).map(([name, value]) => [name, value === null ? '–' : String(value)]) }));
  $('made').textContent = t('made', { day: longDay(dayNumber(DATA.made)), version: DATA.version });
}
