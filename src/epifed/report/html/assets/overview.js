function answer(question, ...content) {
  return make('article', { class: 'answer' }, make('h3', {}, question), ...content);
}

const sumOf = (values) => values.reduce((sum, value) => sum + (value || 0), 0);

// Of the whole country, per 100,000 where the people are known.
const national = (sum) => (PEOPLE ? (sum / sumOf(PEOPLE)) * 1e5 : sum);

// Regions by how much their value will grow, or grew, largest first.
function growing() {
  const from = NEXT === null ? BEFORE : NOW;
  const to = (i) => (NEXT === null ? NOW[i] : quantile(LEVEL.median, i, NEXT));
  return NAMES.map((_, i) => ({ i, from: rate(i, from[i]), to: rate(i, to(i)), way: NEXT === null ? 0 : direction(chanceOfRise(i, NEXT)) }))
    .filter(({ from: a, to: b }) => a !== null && b !== null && b > a)
    .sort((a, b) => b.way - a.way || b.to - b.from - (a.to - a.from));
}

const SAME = 0.05;

function counted() {
  const ways = NAMES.map((_, i) => {
    const moved = change(i, NEXT);
    return moved === null || Math.abs(moved) < SAME ? 0 : Math.sign(moved);
  });
  const count = (way) => ways.filter((w) => w === way).length;
  const sure = NEXT === null ? 0 : NAMES.filter((_, i) => direction(chanceOfRise(i, NEXT)) > 0).length;
  return { up: count(1), down: count(-1), open: count(0), sure };
}

function drawOverview() {
  const known = NOW.some((v) => v !== null);
  const ways = counted();
  const words = { n: num(COUNT, 0), up: num(ways.up, 0), down: num(ways.down, 0), open: num(ways.open, 0), sure: ways.sure && num(ways.sure, 0), all: ways.up === COUNT, level: spoken(), day: longDay(AS_OF) };
  const forecast = NEXT !== null && known;
  const alone = COUNT === 1 && (forecast || HISTORY);
  const head = forecast ? (ways.up === COUNT ? 'headAll' : ways.up ? 'headRising' : 'headNone') : HISTORY ? 'headRose' : 'headNothing';
  const way = ways.up ? 'up' : ways.down ? 'down' : 'open';
  $('headline').textContent = alone ? `${NAMES[0]}: ${t(forecast ? 'oneForecast' : 'oneRose')[way]}` : t(head, words);
  const sure = alone ? (forecast && ways.up ? t('oneSure')[ways.sure ? 'yes' : 'no'] : '') : null;
  $('standfirst').textContent = sure ?? (forecast ? t('standForecast', words) : HISTORY ? t('standRose', words) : '');
  if (forecast) headWithTotal(ways, words);
  $('answers').replaceChildren(whereAnswer(), nextAnswer(), sureAnswer(), privacyAnswer());
}

// The sum first and how sure it is; a forecast that lost to "like today" is no headline.
function headWithTotal(ways, words) {
  const now = NOW.every((v) => v !== null) ? sumOf(NOW) : null;
  const next = totalOf(LEVEL.median);
  if (now === null) return;
  const round = (value) => num(Number(value.toPrecision(3)), 0);
  const name = COUNT === 1 ? NAMES[0] : null;
  if (LOST) {
    const ratio = ABOUT?.method === 'persistence' ? (ABOUT.relative_mae >= 1 ? ABOUT.relative_mae : ABOUT.relative_mae_together) : BACKTEST.record.mae_ratio;
    $('headline').textContent = t('headLost', { ...words, name, now: round(now) });
    $('standfirst').textContent = `${t('standLost', { ratio: num(ratio, 2), shown: ABOUT?.method === 'persistence' })}${between(round)}`;
    return;
  }
  if (next === null) return;
  const moved = now ? next / now - 1 : null;
  const way = moved === null || Math.abs(moved) < SAME ? 'open' : moved > 0 ? 'up' : 'down';
  if (!name) $('headline').textContent = t('headTotal', { ...words, way, next: round(next), change: moved === null ? '–' : signed(moved), by: moved === null ? '' : percent(Math.abs(moved)) });
  const rise = chanceBetween(now, TOTAL.levels, TOTAL.levels.map((_, k) => totalOf(k)));
  const where = name ? '' : ` ${t('standWhere', words)}`;
  const open = ABOUT && ALONE && ABOUT.relative_mae === null ? ` ${t('standUntested')}` : '';
  $('standfirst').textContent = `${between(round).trim()} ${t('standRise', { chance: chance(rise) })}${where}${open}${leftOut()}`;
}

const between = (round) => (totalOf(LEVEL.low95) === null ? '' : ` ${t('standBetween', { low: round(totalOf(LEVEL.low95)), high: round(totalOf(LEVEL.high95)) })}`);
const leftOut = () => (ABOUT && ABOUT.incomplete_days ? ` ${t('standIncomplete', { n: ABOUT.incomplete_days })}` : '');

function whereAnswer() {
  const top = growing().slice(0, 5);
  const lead = NEXT === null ? t('whereRose', { unit: unit() }) : t('whereForecast', { unit: unit() });
  const list = top.map(({ i, from, to }) => make('li', {}, make('button', { type: 'button', class: 'link', onclick: () => select(i, true) }, NAMES[i]), make('span', {}, `${amount(from)} → `, make('b', {}, amount(to)))));
  return answer(t('qWhere'), make('p', { class: 'small' }, top.length ? lead : t('whereNowhere', { level: spoken() })), make('ol', { class: 'top' }, list));
}

function nextAnswer() {
  const now = sumOf(NOW);
  if (NEXT === null) {
    const before = sumOf(BEFORE);
    if (!HISTORY) return answer(t('qNext'), make('p', {}, t('nextNone')));
    return answer(t('qNext'), make('p', {}, t('nextNone')),
      make('p', { class: 'small' }, `${t('nextLast', { cases: num(now, 0), before: num(before, 0), day: longDay(AS_OF), change: before ? signed(now / before - 1) : '–' })}`));
  }
  const whole = totalOf(LEVEL.median);
  const next = whole ?? sumOf(NAMES.map((_, i) => quantile(LEVEL.median, i, NEXT)));
  const known = NOW.every((v) => v !== null);
  return answer(t('qNext'), make('p', { class: 'big' }, amount(national(next)), make('span', { class: 'delta' }, known && now ? signed(next / now - 1) : '')),
    make('p', { class: 'small' }, known ? t('nextNow', { now: amount(national(now)), unit: unit() }) : unit()),
    make('p', { class: 'small' }, t(whole === null ? 'nextCases' : 'nextTotal', { cases: num(Number(next.toPrecision(3)), 0), low: whole === null ? '' : num(Number(totalOf(LEVEL.low95).toPrecision(3)), 0), high: whole === null ? '' : num(Number(totalOf(LEVEL.high95).toPrecision(3)), 0), day: longDay(horizonDay(NEXT)), level: spoken() })));
}

function middle(values) {
  const sorted = values.filter((v) => v !== null && Number.isFinite(v)).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor(sorted.length / 2)] : null;
}

function sureAnswer() {
  const said = [];
  if (NEXT !== null) {
    const relative = (level) => middle(NAMES.map((_, i) => {
      const median = quantile(LEVEL.median, i, NEXT);
      return median ? quantile(level, i, NEXT) / median - 1 : null;
    }));
    const [low, high] = [relative(LEVEL.low95), relative(LEVEL.high95)];
    if (low !== null) said.push(t('sureWidth', { low: signed(low), high: signed(high), level: spoken() }));
  }
  if (BACKTEST) {
    const { forecasts: n, mae, persistence_mae: like, coverage_95: c95 } = BACKTEST.all;
    said.push(t('sureCoverage', { n: num(n, 0), c95: percent(c95) }));
    if (like && !ALONE) said.push(t('sureRatio', { learner: methodName(BACKTEST.record.learner), percent: percent(Math.abs(1 - mae / like)), better: mae < like }));
    if (ALONE && ABOUT && ABOUT.relative_mae !== null) said.push(t('sureAlone', { n: num(ABOUT.origins, 0), ratio: num(ABOUT.relative_mae, 2), together: num(ABOUT.relative_mae_together, 2) }));
  } else if (GRID && persistenceOf(gridCell())) {
    const cell = gridCell();
    const row = federated(cell)[firstBudget(cell)];
    const ratio = row ? overPersistence(cell, row) : null;
    if (ratio !== null) said.push(t('sureGrid', { learner: gridLearner(), eps: eps(row.epsilon), percent: percent(Math.abs(1 - ratio)), better: ratio < 1 }));
  }
  return answer(t('qSure'), ...(said.length ? said : [t('sureNone')]).map((text) => make('p', {}, text)));
}

function privacyAnswer() {
  if (ALONE) return answer(t('qPrivacy'), make('p', {}, t('privacyAlone')));
  const list = budgets();
  let line = t('privacyNone');
  if (PAID && PAID.right) {
    const [one, all] = PAID.right;
    line = t('privacyLine', { eps: eps(PAID.epsilon), right: bound(one), level: spoken() });
    if (PAID.total > PAID.epsilon) line += ` ${t('privacyAll', { n: num(PAID.releases, 0), eps: epsUp(PAID.total), right: bound(all) })}`;
  } else if (list.length && GRID) {
    const row = federated(gridCell())[firstBudget(gridCell())];
    const budget = list.find((b) => b.epsilon === row.epsilon && b.epsilon !== 'inf');
    if (budget) line = t('privacyLine', { eps: eps(budget.epsilon), right: bound(budget.right), level: spoken() });
  }
  const noise = t(DATA.seeded ? 'privacySeeded' : 'privacySecure');
  return answer(t('qPrivacy'), make('p', {}, line), line === t('privacyNone') ? null : make('p', { class: DATA.seeded ? 'warn' : '' }, noise), make('p', {}, make('a', { href: GRID ? '#appendix' : '#privacy' }, t('privacyMore'))));
}
