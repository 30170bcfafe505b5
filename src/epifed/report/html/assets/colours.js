const BREAKS = niceBreaks(NAMES.flatMap((_, i) => [rate(i, NOW[i]), FORECAST ? rate(i, quantile(LEVEL.median, i, NEXT)) : null]));

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
  return classColour(value, scale());
}

function drawLegend() {
  const entries = classNames(scale());
  if (state.measure === 'change' && state.sure) entries.push([css('--empty'), t('unsure')]);
  else if (NAMES.some((_, i) => shown(i).value === null)) entries.push([css('--empty'), t('noValue')]);
  showLegend(entries, state.measure === 'change' ? '' : unit());
}
