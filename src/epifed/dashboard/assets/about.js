function drawParties() {
  const parties = new Set(DATA.certificates.map((one) => one.party));
  const unknown = [...DATA.sites.map((site) => site.name), ...DATA.aggregators].filter((name) => !parties.has(name)).length;
  $('parties-lead').textContent = t('partiesLead', { unknown: unknown && num(unknown, 0) });
  const rows = DATA.certificates.map((one) => [one.party, { text: moment(one.ends), sort: one.ends }, { text: num(one.days, 0), sort: one.days }]);
  $('certificates').replaceChildren(...(rows.length ? [make('div', { class: 'scroll', tabindex: '0' }, table({ caption: t('partiesTitle'), heads: [t('party'), t('ends'), { text: t('daysLeft'), number: true }], rows, sortable: true }))] : [make('p', { class: 'note' }, t('endsNone'))]));
  $('versions').textContent = versionLine();
}

function versionLine() {
  const said = DATA.sites.filter((site) => site.version);
  const others = said.filter((site) => site.version !== DATA.version);
  if (!said.length) return t('versionsUnknown', { version: DATA.version });
  if (!others.length) return t('versionsSame', { n: num(said.length, 0), version: DATA.version });
  return t('versionsOther', { n: num(others.length, 0), version: DATA.version, names: listed(others.map((site) => `${site.name} (${site.version})`)) });
}

function drawKnown() {
  const rows = Object.values(t('known')).map((row) => [...row]);
  $('known-table').replaceChildren(make('div', { class: 'scroll', tabindex: '0' }, table({ caption: t('knownTitle'), heads: [t('what'), t('from'), t('may')], rows })));
  $('made').textContent = t('footer', { version: DATA.version, every: EVERY / 1000 });
}
