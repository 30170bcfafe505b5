const FIRST_ROWS = 500;

// A table of plain cells. A head is a text or {text, number}; a cell is a text, a node, or
// {text, sort}. With `sortable`, heads are buttons.
function table({ caption, heads, rows, sortable, mark }) {
  const columns = heads.map((head) => (typeof head === 'string' ? { text: head } : head));
  const body = make('tbody', {});
  const order = { column: -1, down: true, all: rows.length <= FIRST_ROWS };
  const note = make('p', { class: 'note' });
  const content = (cell) => (cell !== null && typeof cell === 'object' && !(cell instanceof Node) ? cell.text : cell);
  const fill = () => {
    const sorted = order.column < 0 ? rows : [...rows].sort((a, b) => compared(a[order.column], b[order.column]) * (order.down ? -1 : 1));
    const kept = order.all ? sorted : sorted.slice(0, FIRST_ROWS);
    body.replaceChildren(...kept.map((row) => make('tr', { class: mark && mark(row) }, row.map((cell, i) => (
      i === 0 ? make('th', { scope: 'row' }, content(cell)) : make('td', { class: columns[i].number ? 'number' : null }, content(cell))
    )))));
    note.replaceChildren();
    if (!order.all) {
      note.append(t('firstRows', { n: FIRST_ROWS, all: num(rows.length, 0) }), ' ', make('button', { type: 'button', onclick: () => { order.all = true; fill(); } }, t('showAll')));
    }
  };
  const headCells = columns.map((column, i) => {
    const cell = make('th', { scope: 'col', class: column.number ? 'number' : null });
    const sort = () => {
      order.down = order.column === i ? !order.down : Boolean(column.number);
      order.column = i;
      headCells.forEach((other) => other.removeAttribute('aria-sort'));
      cell.setAttribute('aria-sort', order.down ? 'descending' : 'ascending');
      fill();
    };
    cell.append(sortable ? make('button', { type: 'button', onclick: sort }, column.text) : column.text);
    return cell;
  });
  fill();
  const element = make('table', {}, make('caption', {}, caption), make('thead', {}, make('tr', {}, headCells)), body);
  return make('div', {}, element, note);
}

function compared(a, b) {
  const [x, y] = [a, b].map((cell) => (cell !== null && typeof cell === 'object' && 'sort' in cell ? cell.sort : cell));
  if (x === null || x === undefined) return y === null || y === undefined ? 0 : -1;
  if (y === null || y === undefined) return 1;
  return typeof x === 'string' ? x.localeCompare(y, locale()) : x - y;
}

// The table behind a chart is built when it is first opened.
const behindTables = new Map();

function behind(id, build) {
  const details = $(id);
  if (!behindTables.has(id)) details.addEventListener('toggle', () => refill(id));
  behindTables.set(id, build);
  refill(id);
}

function refill(id) {
  const details = $(id);
  const place = details.lastElementChild;
  if (details.open) place.replaceChildren(make('div', { class: 'scroll', tabindex: '0' }, behindTables.get(id)()));
  else place.replaceChildren();
}

const sortable = (value, format) => ({ text: format(value), sort: value });
