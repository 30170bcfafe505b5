// A member of a federation: what came, what would be sent, the office's own forecast.
async function memberWork(action) {
  shown.memberBusy = true;
  shown.memberProblem = '';
  drawMember();
  try {
    take(await post(action));
  } catch (refusal) {
    if (!(refusal instanceof Refusal)) throw refusal;
    shown.memberProblem = refusal.message;
  }
  shown.memberBusy = false;
  drawAll();
}

const isoDay = (iso) => longDay(dayNumber(iso));
const trouble = (head, lines) => make('div', { class: 'trouble' }, head ? make('b', {}, head) : null, lines.map((line) => make('p', {}, line)));

function releasePart(release) {
  const part = [make('h3', {}, t('memberReleaseTitle'))];
  if (!release) return [...part, make('p', {}, t('memberNoRelease'))];
  return [...part, make('p', {}, t('memberRelease', { training: release.training, first: isoDay(release.first_day), last: isoDay(release.last_day), epsilon: release.epsilon, delta: release.delta, seen: release.epsilon_without_amplification, accountant: release.accountant })), release.secure ? null : make('p', { class: 'warn' }, t('memberSeeded'))];
}

function trainingPart(asked) {
  const part = [make('h3', {}, t('memberTrainingTitle'))];
  if (!asked) return [...part, make('p', {}, t('memberNoTraining'))];
  part.push(make('p', {}, t('memberTraining', { training: asked.training, first: isoDay(asked.first_day), last: isoDay(asked.last_day), enrolled: num(asked.enrolled, 0) })));
  if (asked.problem) part.push(trouble(t('memberRefused'), [said(asked.problem)]));
  else part.push(make('p', {}, t('memberAnswered')));
  const left = Object.entries(asked.left_out);
  if (left.length) part.push(trouble(null, left.map(([client, why]) => t('memberLeftOut', { client, reason: said(why) }))));
  return part;
}

function previewPart(member) {
  const { preview } = member;
  const part = [make('h3', {}, t('memberPreviewTitle')), make('p', {}, t('memberPreviewLead'))];
  if (!preview) {
    if (member.asked) part.push(make('div', { class: 'choices' }, make('button', { type: 'button', class: 'main', id: 'preview', disabled: shown.memberBusy, onclick: () => memberWork('preview') }, t('memberPreview'))));
    return part;
  }
  if (!preview.fits) part.push(trouble(null, [t('memberNoFit')]));
  part.push(make('p', {}, t(preview.sealed ? 'memberSealed' : 'memberOpenly', { bytes: num(preview.bytes, 0) })));
  for (const [client, row] of Object.entries(preview.vectors)) {
    const why = preview.left_out[client];
    const words = t('memberPreviewOf', { client, first: isoDay(preview.first_day), last: isoDay(preview.last_day), n: num(row.length, 0), norm: num(preview.norms[client], 4), bound: num(preview.bound) });
    part.push(why ? trouble(null, [t('memberWouldZero', { client, reason: said(why) })]) : make('details', { class: 'behind', open: Object.keys(preview.vectors).length === 1 }, make('summary', {}, words), make('ul', { class: 'numbers' }, row.map((value, k) => make('li', {}, make('span', {}, preview.entries[k]), make('b', {}, num(value, 6)))))));
  }
  return part;
}

function ownPart(own, problems) {
  const part = [make('h3', {}, t('memberOwnTitle')), make('p', {}, own.made ? t('memberOwnMade', { week: own.week }) : t('memberOwnNone'))];
  if (problems.length) part.push(trouble(t('memberProblems'), problems.map(said)));
  const report = own.made ? make('a', { class: 'choice', href: 'api/take/week', download: '' }, t('memberReport'), make('small', {}, own.week)) : null;
  part.push(make('div', { class: 'choices' }, make('button', { type: 'button', class: 'main', id: 'own', disabled: shown.memberBusy, onclick: () => memberWork('own') }, t('memberOwn')), report));
  return part;
}

function drawMember() {
  const { member } = DATA;
  $('member').hidden = !member;
  if (!member) return;
  $('member-title').textContent = t('memberTitle', { name: member.site });
  $('member-content').replaceChildren(...[
    make('p', { class: 'lead' }, `${t('memberClients')}: ${member.clients.join(', ')}`),
    shown.memberBusy ? make('p', { class: 'busy', role: 'status' }, t('memberWorking')) : null,
    shown.memberProblem ? trouble(null, [said(shown.memberProblem)]) : null,
    ...releasePart(member.release), ...trainingPart(member.asked), ...previewPart(member), ...ownPart(member.own, member.problems),
  ].filter(Boolean));
}
