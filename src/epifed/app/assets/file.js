// The file: dropped, read, asked about, shown as it was read.
async function openFile(file) {
  if (!/json$/i.test(file.name)) shown.region = -1;
  await work('reading', () => ask(`api/file?name=${encodeURIComponent(file.name)}`, { method: 'POST', body: file, headers: { 'content-type': 'application/octet-stream' } }));
  settle();
}

async function answer(options) {
  await work('answering', () => post('answer', options));
  settle();
}

// After a change: the next question has the focus, or the forecast is made.
function settle() {
  const { file } = DATA;
  if (file && file.question) {
    $('question').scrollIntoView({ block: 'nearest' });
    $('question-title').focus({ preventScroll: true });
  } else if (DATA.check && !DATA.forecast) {
    if (document.activeElement === document.body) $('table-title').focus({ preventScroll: true });
    makeForecast({});
  }
}

async function work(words, doing) {
  shown.busy = words;
  shown.problem = null;
  drawFile();
  try {
    take(await doing());
    shown.forecastProblem = '';
  } catch (refusal) {
    if (!(refusal instanceof Refusal)) throw refusal;
    shown.problem = refusal.message;
  }
  shown.busy = '';
  drawAll();
}

function setUpFile() {
  const drop = $('drop');
  $('choose').addEventListener('click', () => $('picker').click());
  $('picker').addEventListener('change', () => { if ($('picker').files.length) openFile($('picker').files[0]); $('picker').value = ''; });
  // Anywhere on the page: a file that misses the frame must not replace the page.
  let depth = 0;
  document.addEventListener('dragenter', (event) => { event.preventDefault(); depth += 1; drop.classList.add('over'); });
  document.addEventListener('dragleave', () => { depth -= 1; if (depth <= 0) drop.classList.remove('over'); });
  document.addEventListener('dragover', (event) => event.preventDefault());
  document.addEventListener('drop', (event) => {
    event.preventDefault();
    depth = 0;
    drop.classList.remove('over');
    if (event.dataTransfer.files.length) openFile(event.dataTransfer.files[0]);
  });
  $('copy').addEventListener('click', async () => {
    await navigator.clipboard.writeText(DATA.file.command);
    $('copy').textContent = t('copied');
  });
}

function drawFile() {
  const { file } = DATA;
  $('file').classList.toggle('open', Boolean(file));
  document.body.classList.toggle('has-file', Boolean(file));
  $('file-title').textContent = file ? t('fileOpen', file) : t('fileTitle');
  const ready = file && DATA.forecast && !shown.working;
  $('file-lead').replaceChildren(ready ? make('a', { href: '#forecast' }, headline(chosenForecast())[0]) : t('fileLead'));
  $('file-lead').hidden = Boolean(file) && !ready;
  $('drop-words').textContent = t(file ? 'dropOther' : 'dropWords');
  $('choose').textContent = t(file ? 'chooseOther' : 'choose');
  $('drop-note').textContent = t('dropNote');
  $('busy').hidden = !shown.busy;
  $('busy').textContent = shown.busy ? t(shown.busy) : '';
  const problem = shown.problem ?? (file ? file.problem : '');
  $('problem').hidden = !problem;
  if (problem) {
    const table = file && file.rows.length && shown.problem === null;
    $('problem').replaceChildren(make('b', {}, t('problemTitle')), make('p', {}, said(problem)), make('p', {}, t(table ? 'problemHelp' : 'problemHelpNoTable')));
  }
}

function dateFormat(format) {
  const end = Object.keys(t('dateEnds')).find((one) => format.endsWith(one)) ?? '';
  const plain = format.slice(0, format.length - end.length);
  return `${t('dateFormats')[plain] ?? plain}${end && t('dateEnds')[end]}`;
}

const quoted = (options) => JSON.stringify(options);

function answerWords(kind, { options, reading }, last) {
  const [key] = Object.keys(options).filter((name) => name !== 'duplicates' || !options.only);
  if (key === 'date_format') {
    const day = reading ? longDay(dayNumber(reading)) : options.date_format;
    const weekly = ['iso-week', 'epiweek'].includes(options.date_format);
    return [weekly ? t('weekTo', day) : t('dayShown', day), dateFormat(options.date_format)];
  }
  if (key === 'thousands' || key === 'decimal') return [t('casesShown', reading === null ? '–' : num(reading, Number.isInteger(reading) ? 0 : 3)), t('signs')[key](options[key])];
  const name = ['cases', 'column_cases'].includes(kind) && options.line_list ? 'line_list' : ['cases', 'date', 'region'].find((one) => kind.endsWith(one) && options[one]) ?? key;
  if (kind === 'cases' && options.layout === 'regions-across') return t('noColumn');
  const together = kind === 'only' && options.duplicates === 'sum';
  const words = together ? () => t('allTogether') : ['cases', 'column_cases'].includes(kind) && (options.cases ?? '').includes('+') && !DATA.file.columns.includes(options.cases) ? (v) => [v.split('+').join(' + '), t('addedUp')] : t('answer')[name];
  const found = words ? words(options[name], last) : quoted(options);
  return Array.isArray(found) ? found : [found, ''];
}

function drawQuestion() {
  const question = DATA.file && DATA.file.question;
  $('question').hidden = !question;
  if (!question) return;
  $('question-kicker').textContent = t('questionKicker');
  $('question-title').textContent = (t('question')[question.kind] ?? t('question').other)(question);
  const hint = t('hint')[question.kind];
  $('question-hint').textContent = (typeof hint === 'function' ? hint(question) : hint) ?? '';
  $('question-sentence').textContent = said(question.sentence);
  $('question-sentence').parentElement.hidden = !question.sentence;
  $('choices').classList.toggle('many', question.answers.length > 6);
  $('choices').replaceChildren(...question.answers.map((one, at) => {
    const [words, more] = answerWords(question.kind, one, at > 0);
    return make('button', { type: 'button', class: 'choice', onclick: () => answer(one.options) }, words, more ? make('small', {}, more) : null);
  }));
}

const ROLES = ['date', 'region', 'cases', 'population'];

// The roles as menus; a bracketed name is no column: (column names), (rows), (days).
function drawRoles(file) {
  const names = [...new Set(file.columns.filter(Boolean))];
  const across = Object.values(file.roles).some((name) => ['(days)', '(regions)'].includes(name));
  $('roles').replaceChildren(...ROLES.map((role) => {
    const chosen = file.roles[role] ?? '';
    if (role === 'region' && file.said.regions_from) return make('span', { class: `role ${role}` }, t('role')[role], make('strong', {}, t('roleSheets')));
    if (role === 'population' && chosen.startsWith('(')) return make('span', { class: `role ${role}` }, t('role')[role], make('strong', {}, chosen.slice(1, -1)));
    if (chosen.startsWith('(') && chosen !== '(file)' && (role !== 'cases' || across)) {
      const where = chosen === '(column names)' ? 'roleNames' : chosen === '(sheets)' ? 'roleSheets' : 'roleCells';
      return make('span', { class: `role ${role}` }, t('role')[role], make('strong', {}, t(where)));
    }
    const entries = [...(role === 'date' ? file.days : []), ...names].map((name) => [name, name]);
    if (role === 'cases') entries.push(['(rows)', t('roleRows')]);
    if (chosen && !chosen.startsWith('(') && !entries.some(([name]) => name === chosen)) entries.unshift([chosen, chosen]);
    if (chosen === '(file)') entries.push(['(file)', t('roleFile')]);
    if (role === 'population' || !chosen) entries.unshift(['', t('roleNone')]);
    const pick = make('select', { onchange: (event) => answer(roleOptions(role, event.target.value)) }, entries.map(([value, words]) => make('option', { value, selected: value === chosen }, words)));
    return make('label', { class: `role ${role}` }, t('role')[role], pick);
  }));
}

function roleOptions(role, value) {
  if (role === 'cases') return value === '(rows)' ? { cases: null, line_list: true } : { cases: value, line_list: null };
  if (role === 'region' && DATA.file.roles.region === '(file)') return { region: value, one_region: null };
  return { [role]: value || null };
}

function drawRows(file) {
  const role = (at) => ROLES.find((one) => file.roles[one] && file.roles[one].split('+').concat(file.roles[one]).includes(file.columns[at]));
  const width = Math.max(...file.rows.map(([, cells]) => cells.length), file.columns.length);
  $('first-rows').replaceChildren(make('table', {}, make('tbody', {}, file.rows.map(([row, cells]) => {
    const above = row < file.header_row;
    const header = row === file.header_row || row === 0;
    const number = row === 0 ? '' : header ? `${row}` : make('button', { type: 'button', title: t('makeHeader', row), 'aria-label': t('makeHeader', row), onclick: () => answer({ header_row: row }) }, `${row}`);
    const what = header ? t('header') : above ? t('aboveHeader') : '';
    const head = make('th', { scope: 'row' }, number, what ? make('span', { class: 'what' }, ` ${what}`) : null);
    if (above) return make('tr', { class: 'above' }, head, make('td', { colspan: width }, cells.filter(Boolean).join(' · ')));
    const body = Array.from({ length: width }, (_, i) => {
      const kind = role(i);
      return make('td', { class: kind ? `marked ${kind}${header ? ' named' : ''}` : null }, cells[i] ?? '');
    });
    return make('tr', { class: header ? 'header' : null }, head, body);
  }))), file.hidden_columns ? make('p', { class: 'note' }, t('moreColumns', file.hidden_columns)) : '');
}

const CHANGEABLE = { cadence: ['day', 'week'], counts: ['new', 'cumulative', 'cumulative-yearly'], totals: ['drop', 'keep'], weeks_dated: ['first', 'last'], below: [2, 0, 'left out'] };

// What was read between the lines, each as a menu.
function drawReadings(file) {
  const now = { ...file.read_as, ...file.assumed, ...file.said };
  const items = Object.entries(CHANGEABLE).filter(([name]) => now[name] !== undefined && now[name] !== null && !(name === 'weeks_dated' && now.cadence !== 'week')).map(([name, values]) => {
    const words = t('readingValue')[name];
    const all = values.some((value) => String(value) === String(now[name])) ? values : [now[name], ...values];
    const pick = make('select', { onchange: (event) => answer({ [name]: all[event.target.selectedIndex] }) }, all.map((value) => make('option', { selected: String(value) === String(now[name]) }, words[value] ?? String(value))));
    return make('label', {}, t('readingOf')[name], pick);
  });
  if (now.date_format && now.date_format !== '%Y-%m-%d') items.push(make('span', {}, `${t('readingOf').date_format} ${dateFormat(now.date_format)}`));
  if (Object.keys(file.said).length) items.push(make('button', { type: 'button', class: 'icon again', id: 'anew', onclick: async () => { await work('answering', () => post('anew')); settle(); } }, t('anew')));
  $('readings').replaceChildren(...items);
}

function drawTable() {
  const { file } = DATA;
  const there = Boolean(file && file.rows.length);
  $('table').hidden = !there;
  if (!there) return;
  $('table-lead').textContent = file.remembered ? t('rememberedNote', { list: t('tableLead') }) : t('tableLead');
  drawRoles(file);
  drawRows(file);
  drawReadings(file);
  $('notes-part').hidden = !file.notes.length;
  $('notes-title').textContent = t('notesTitle', file.notes.length);
  $('notes').replaceChildren(...file.notes.map((note) => make('li', {}, said(note))));
  $('command').textContent = file.command;
  $('command-part').hidden = !DATA.check;
}
