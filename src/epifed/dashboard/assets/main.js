const clock = (iso, options) => new Intl.DateTimeFormat(locale(), options).format(new Date(iso));
const moment = (iso) => clock(iso, { day: '2-digit', month: '2-digit', year: 'numeric', hour: '2-digit', minute: '2-digit' });
const due = (iso) => clock(iso, { weekday: 'short', day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' });

function ago(iso) {
  const seconds = Math.max(0, Math.round((new Date(DATA.made) - new Date(iso)) / 1000));
  return seconds < 120 ? t('agoSeconds', num(seconds, 0)) : t('agoMinutes', num(Math.round(seconds / 60), 0));
}

function noticeWords(notice) {
  const reasons = notice.kind === 'unusual' ? notice.names.map(reason).join('; ') : '';
  return t('notice')[notice.kind]({ n: notice.names.length, names: listed(notice.names), detail: notice.detail, reasons });
}

function drawFrame() {
  drawControls();
  const title = t('title', { name: DATA.federation });
  $('title').textContent = title;
  $('subtitle').textContent = t('subtitle', { time: clock(DATA.made, { dateStyle: 'medium', timeStyle: 'medium' }), clients: num(DATA.clients, 0), sites: num(DATA.sites.length, 0), version: DATA.version });
  drawLabels();
}

function drawLabels() {
  const labels = [];
  if (asked.failed > 1) labels.push([t('lostLabel'), t('lostText')]);
  else if ((Date.now() - new Date(DATA.made)) / 1000 > STALE) labels.push([t('staleLabel'), t('staleText', { time: clock(DATA.made, { timeStyle: 'medium' }) })]);
  const text = labels.map((label) => label.join(' ')).join(' ');
  if ($('labels').textContent !== text) $('labels').replaceChildren(...labels.map(([head, said]) => make('p', { class: 'label' }, make('strong', {}, head), ' ', said)));
}

function drawOverview() {
  const urgent = DATA.notices.filter((one) => one.urgent);
  const level = urgent.length ? 'urgent' : DATA.notices.length ? 'look' : 'fine';
  const week = DATA.week ? t('headWeek')[DATA.week.state]({ day: longDay(dayOf(DATA.week.day)) }) : '';
  const sites = t('headSites', { there: num(connected().length, 0), live: reached(), all: num(DATA.sites.length, 0) });
  const list = level === 'urgent' ? urgent : DATA.notices;
  const first = list.length ? noticeWords(list[0])[0] : '';
  const head = level === 'urgent' ? 'headUrgent' : level === 'look' ? 'headLook' : 'headFine';
  const text = t(head, { sites, week, n: list.length, first }).trim();
  if ($('headline').textContent !== text) $('headline').textContent = text;
  $('overview').className = level;
  $('mark').textContent = t(level);
  $('standfirst').textContent = t('standfirst');
  document.title = `${t(level).slice(0, 1)} ${t('title', { name: DATA.federation })}`;
  $('answers').replaceChildren(sitesAnswer(), weekAnswer(), budgetAnswer(), endsAnswer());
}

function answer(question, big, kind, ...small) {
  return make('article', { class: 'answer' }, make('h3', {}, question), big ? make('p', { class: `big ${kind}` }, big) : null, ...small.filter(Boolean).map((text) => make('p', { class: 'small' }, text)));
}

function sitesAnswer() {
  const { live } = DATA;
  const known = live && live.reached;
  const line = known ? t('sitesNow', { ago: ago(live.asked) }) : t(live ? 'sitesAway' : 'sitesThen');
  const here = connected().length;
  const counts = STATES.filter((state) => !THERE.includes(state)).map((state) => [state, sitesOf(state).length]).filter(([, n]) => n);
  return answer(t('qSites'), t('sitesBig', { there: num(here, 0), all: num(DATA.sites.length, 0) }), '', line, counts.map(([state, n]) => `${num(n, 0)} ${t('stateName')[state]}`).join(' · '));
}

function weekAnswer() {
  const { week } = DATA;
  const last = lastTraining();
  if (!week) return answer(t('qWeek'), '', '', last ? t('weekLast', { name: last.name }) : t('weekNone'));
  const bad = ['refused', 'wasted', 'missed'].includes(week.state) ? ' bad' : '';
  return answer(t('qWeek'), t('weekState')[week.state], `word${bad}`, t('weekDue', { day: longDay(dayOf(week.day)), due: due(week.due) }), week.next_due ? t('weekNext', { due: due(week.next_due) }) : '');
}

function budgetAnswer() {
  const { budget } = DATA;
  if (!budget) return answer(t('qBudget'), '', '', t('budgetNone'));
  const short = budget.weeks_left !== null && budget.weeks_fit < budget.weeks_left;
  const ends = budget.ends ? t('budgetEnds', { weeks: num(budget.weeks_fit, 0), day: longDay(dayOf(budget.ends)), left: budget.weeks_left === null ? null : num(budget.weeks_left, 0), short }) : '';
  return answer(t('qBudget'), t('budgetBig', { left: down(budget.left) }), '', t('budgetOf', { cap: eps(budget.epsilon), spent: up(budget.spent) }), ends, budget.window === null ? '' : t('budgetRenews', { weeks: num(budget.window, 0), total: up(budget.total) }));
}

function endsAnswer() {
  const [first] = DATA.certificates;
  if (!first) return answer(t('qEnds'), '', '', t('endsNone'), versionLine());
  return answer(t('qEnds'), t('endsBig', { days: first.days }), '', t('endsFirst', { days: first.days, party: first.party, day: longDay(dayOf(first.ends)) }), versionLine());
}

function drawNotices() {
  const items = DATA.notices.map((notice) => {
    const [what, todo] = noticeWords(notice);
    return make('li', { class: notice.urgent ? 'urgent' : 'look' }, make('i', { 'aria-hidden': 'true' }, notice.urgent ? '▲' : '●'), make('b', {}, what), make('small', {}, todo));
  });
  const fine = make('li', { class: 'fine' }, make('i', { 'aria-hidden': 'true' }, '✓'), make('span', {}, t('nothing')));
  $('notices').replaceChildren(...(items.length ? items : [fine]));
}

function drawAll() {
  if (!DATA) return;
  drawFrame();
  drawOverview();
  drawNotices();
  drawSites();
  drawWeek();
  drawBudget();
  drawReleases();
  drawParties();
  drawKnown();
}

// Where the reader is, and what is open or focused, stays: a table is only drawn anew if it changed.
let drawn = '';
function redraw() {
  const content = JSON.stringify({ ...DATA, made: null, live: { ...DATA.live, asked: null } });
  if (content === drawn) {
    drawFrame();
    return;
  }
  drawn = content;
  drawAll();
}

// The state is asked for while the charting library is still being loaded.
const loaded = new Promise((done) => { document.addEventListener('DOMContentLoaded', done, { once: true }); });

async function goOn() {
  try {
    const fresh = await ask();
    await loaded;
    if (fresh) redraw();
    asked.failed = 0;
  } catch {
    asked.failed += 1;
  }
  if (DATA) {
    drawLabels();
    document.documentElement.dataset.ready ??= String(Math.round(performance.now()));
  }
  setTimeout(goOn, DATA ? EVERY : 1000);
}

setUpControls(drawAll);
loaded.then(() => new ResizeObserver(() => charts.forEach((chart, id) => { if (chart.getWidth() !== $(id).clientWidth && $(id).clientWidth) chart.resize(); })).observe($('main')));
goOn();
