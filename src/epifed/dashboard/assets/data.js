// The newest state, as the machine that serves this page has read it.
let DATA = null;
let TAG = null;
const EVERY = 5000;
const STALE = 90;
const asked = { failed: 0 };

async function ask() {
  const answer = await fetch('api/state', { cache: 'no-store', credentials: 'same-origin', headers: TAG ? { 'If-None-Match': TAG } : {} });
  if (answer.status === 304) return false;
  if (!answer.ok) throw new Error(String(answer.status));
  TAG = answer.headers.get('etag');
  DATA = await answer.json();
  return true;
}

const STATES = ['connected', 'contributed', 'absent', 'late', 'refused', 'faulty', 'unknown'];
const THERE = ['connected', 'contributed'];
const LETTERS = { t: 'contributed', a: 'absent', l: 'late', r: 'refused', f: 'faulty' };
const sitesOf = (state) => DATA.sites.filter((site) => site.state === state);
const there = () => DATA.sites.filter((site) => THERE.includes(site.state));
const reached = () => Boolean(DATA.live && DATA.live.reached);
const connected = () => (reached() ? DATA.sites.filter((site) => site.connected) : there());
const released = () => DATA.trainings.filter((one) => one.release && !one.seeded);
const lastTraining = () => {
  const real = DATA.trainings.filter((one) => !one.seeded);
  return (real.length ? real : DATA.trainings).at(-1) || null;
};
const reason = (code) => DATA.reasons[code]?.[state.lang] ?? code;
const dayOf = (iso) => dayNumber(iso.slice(0, 10));
