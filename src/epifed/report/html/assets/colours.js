// ColorBrewer BuPu and BrBG: both are safe for colour-blind readers. In the dark, low is dark.
const SEQUENTIAL = ['#edf4f9', '#cbdcec', '#a6bddb', '#8c96c6', '#8c6bb1', '#88419d', '#5c0a5f'];
const SEQUENTIAL_DARK = ['#2a2d3f', '#3d3f63', '#565296', '#7a66b8', '#a07fd0', '#c7a3e4', '#f0d6fb'];
const DIVERGING = ['#01665e', '#5ab4ac', '#b5ddd8', '#eeeeea', '#f0d9a7', '#d8a24b', '#99560b'];
const DIVERGING_DARK = ['#6fe0d2', '#2f9c91', '#22605a', '#3a3d42', '#6b5222', '#b0772a', '#f3b455'];
const CHANGES = [-0.5, -0.25, -0.1, 0.1, 0.25, 0.5];
const NICE = [0.5, 1, 2, 5, 10, 25, 35, 50, 75, 100, 150, 200, 250, 300, 400, 500, 750, 1000, 1500, 2000, 2500, 3000, 4000, 5000, 7500, 10000, 20000, 50000, 1e5, 1e6];

// Round borders near the sevenths of now and next week together, so that both maps compare.
function niceBreaks() {
  const values = NAMES.flatMap((_, i) => [rate(i, NOW[i]), FORECAST ? rate(i, quantile(LEVEL.median, i, NEXT)) : null])
    .filter((v) => v !== null).sort((a, b) => a - b);
  if (!values.length) return [1, 2, 5, 10, 25, 50];
  const found = [];
  for (let k = 1; k < 7; k += 1) {
    const wanted = values[Math.floor((k * values.length) / 7)];
    const free = NICE.filter((n) => !found.length || n > found[found.length - 1]);
    found.push(free.reduce((best, n) => (Math.abs(Math.log(n / wanted)) < Math.abs(Math.log(best / wanted)) ? n : best)));
  }
  return found;
}

const BREAKS = niceBreaks();

function scale() {
  const diverging = state.measure === 'change';
  return {
    breaks: diverging ? CHANGES : BREAKS,
    colours: diverging ? (state.dark ? DIVERGING_DARK : DIVERGING) : (state.dark ? SEQUENTIAL_DARK : SEQUENTIAL),
    text: diverging ? signed : amount,
  };
}

// What the map shows of a region: its value, and whether it is left out as not sure.
function shown(region) {
  const at = state.measure === 'now' ? null : WEEKS[state.week] ?? null;
  if (state.measure === 'now') return { value: rate(region, NOW[region]) };
  if (state.measure === 'forecast') return { value: rate(region, quantile(LEVEL.median, region, at)) };
  const unsure = state.sure && at !== null && direction(chanceOfRise(region, at)) === 0;
  return { value: change(region, at), unsure };
}

function colourOf({ value, unsure }) {
  if (value === null || unsure) return css('--empty');
  const { breaks, colours } = scale();
  let k = 0;
  while (k < breaks.length && value >= breaks[k]) k += 1;
  return colours[k];
}

function drawLegend() {
  const { breaks, colours, text } = scale();
  const label = (k) => (k === 0 ? t('below', text(breaks[0])) : k === breaks.length ? t('above', text(breaks[k - 1])) : `${text(breaks[k - 1])} – ${text(breaks[k])}`);
  const entries = colours.map((colour, k) => [colour, label(k)]);
  if (state.measure === 'change' && state.sure) entries.push([css('--empty'), t('unsure')]);
  else if (NAMES.some((_, i) => shown(i).value === null)) entries.push([css('--empty'), t('noValue')]);
  $('legend').replaceChildren(make('ul', {}, entries.map(([colour, words]) => {
    const swatch = make('i', {});
    swatch.style.background = colour;
    return make('li', {}, swatch, words);
  })), make('span', {}, state.measure === 'change' ? '' : unit()));
}
