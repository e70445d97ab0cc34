const part = id => document.getElementById(id);

function element(tag, name, ...content) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...content);
  return made;
}

addEventListener("beforeprint", () => { for (const of of document.querySelectorAll("details")) of.open = of.id === "details"; });

if (part("data")) {
const packed = new Blob([Uint8Array.from(atob(part("data").textContent), letter => letter.charCodeAt(0))]);
const data = await new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).json();
const { texts, items, groups, factors, replies, prompts, runs, words, around } = data;
const WRONG = 0, NONE = 3, LEFT_OUT = 4, PROMPTS = 4, FIRST_RUN = 5;
const MARKS = ["\u2717", "\u2713", "\u2248", "\u2013", "\u2013"], CLASSES = ["wrong", "right", "wrong", "none", "none"];
const VERDICTS = ["wrong", "right", "right for another " + words[1], "no answer", "not counted"];
// An item: [group, id, what it asks, gold, prompts, replies of run 1, replies of run 2, ...].
// A reply: [verdict, answer, what was written or why there is none].

/** The positions of the variants of a group that have the chosen level of each factor; -1: any. */
function chosenVariants(levels, chosen) {
  const fits = of => chosen.every((level, at) => level < 0 || of[at] === level);
  return levels.flatMap((of, at) => fits(of) ? [at] : []);
}

/** Whether two replies to one prompt are different answers. */
function differs(first, second) {
  return first >= 0 && second >= 0 && replies[first][1] !== replies[second][1];
}

/** What the order and the filters ask of an item: in how many variants each run differs from the
    first, the largest share of pairs of answers that disagree, and how many are wrong. */
function stateOf(item, variants) {
  const of = item.slice(FIRST_RUN), state = { asked: 0, disagree: 0, wrong: 0, differ: of.map(() => 0) };
  of.forEach((run, number) => {
    const counts = new Map();
    let asked = 0, agree = 0;
    for (const at of variants) {
      if (run[at] < 0) continue;
      const [verdict, answer] = replies[run[at]];
      state.asked++;
      if (differs(of[0][at], run[at])) state.differ[number]++;
      if (verdict === LEFT_OUT) continue;
      if (verdict === WRONG || verdict === NONE) state.wrong++;
      const same = verdict === NONE ? 0 : counts.get(answer) || 0;
      counts.set(answer, same + 1);
      asked++;
      agree += same;
    }
    if (asked > 1) state.disagree = Math.max(state.disagree, 1 - agree / (asked * (asked - 1) / 2));
  });
  state.differs = Math.max(...state.differ);
  return state;
}

const SHOWN = [
  ["all", "all " + words[1] + "s", () => true],
  ["disagree", words[2] + "s disagree", state => state.disagree > 0],
  ["agree", words[2] + "s agree", state => state.disagree === 0],
  ["wrong", "some answer is wrong", state => state.wrong > 0],
  ...runs.length > 1 ? [["differ", "the runs differ", state => state.differs > 0]] : [],
];

const found = new Map();
/** All texts of an item, in lower case. */
function haystack(item, at) {
  if (!found.has(at)) {
    const numbers = new Set(item.slice(1, PROMPTS));
    for (const sent of new Set(item[PROMPTS])) if (sent >= 0) prompts[sent].forEach(line => numbers.add(line));
    for (const run of item.slice(FIRST_RUN)) for (const reply of run) if (reply >= 0) numbers.add(replies[reply][1]).add(replies[reply][2]);
    numbers.delete(-1);
    found.set(at, [groups[item[0]][0], ...[...numbers].map(number => texts[number])].join("\n").toLowerCase());
  }
  return found.get(at);
}

/** The rows of the list, the worst first: [position, state, variants] of each item that passes. */
function filtered() {
  const variants = groups.map(group => chosenVariants(group[2], filter.levels));
  const isShown = SHOWN.find(([name]) => name === filter.show)[2], text = filter.text.trim().toLowerCase();
  const rows = items.flatMap((item, at) => {
    if (filter.group >= 0 && item[0] !== filter.group) return [];
    const state = stateOf(item, variants[item[0]]);
    const passes = state.asked && isShown(state) && (!text || haystack(item, at).includes(text));
    return passes ? [[at, state, variants[item[0]]]] : [];
  });
  return rows.sort(([, a], [, b]) => b.differs - a.differs || b.disagree - a.disagree || b.wrong - a.wrong);
}

/** The lines of a prompt without those around all questions. */
function ownLines(item, at) {
  if (item[PROMPTS][at] < 0) return [];
  const lines = prompts[item[PROMPTS][at]], [begin, end] = around[groups[item[0]][1][at]];
  return lines.slice(begin, lines.length - end).map(line => texts[line]).filter(line => line.trim());
}

/** For each member of a list the place in another list of what corresponds to it, or -1: in the
    order of both lists the pairs with the largest sum of weights. */
function aligned(list, other, weight) {
  const width = other.length + 1;
  if (list.length * width > 4e6) return list.map(() => -1);
  const best = new Float64Array((list.length + 1) * width);
  for (let at = list.length - 1; at >= 0; at--) {
    for (let of = width - 2, here = at * width + of; of >= 0; of--, here--) {
      best[here] = Math.max(best[here + width], best[here + 1], weight(list[at], other[of]) + best[here + width + 1]);
    }
  }
  let of = 0;
  return list.map((_, at) => {
    while (of < other.length && best[at * width + of] === best[at * width + of + 1]) of++;
    return best[at * width + of] === best[(at + 1) * width + of] ? -1 : of++;
  });
}

const firstWord = line => line.trim().split(/\s/, 1)[0];
/** Equal lines correspond first, then those that begin with the same word, such as a label. */
const alike = (line, other) => line === other ? 1e6 : firstWord(line) === firstWord(other) ? 1e3 : 1;

/** A line, with the words marked that the line which corresponds to it lacks. */
function marked(line, other = "") {
  const words = line.split(/(\s+)/), places = aligned(words, other.split(/(\s+)/), (word, of) => Number(word === of));
  return [...words.map((word, at) => places[at] < 0 && word.trim() ? element("mark", "", word) : word), "\n"];
}

/** A reply with its mark; `count`: how many variants have it. */
function shownReply(number, count = 0) {
  const [verdict, answer] = number < 0 ? [NONE, -1] : replies[number];
  const text = answer < 0 ? "" : texts[answer] || "(empty)", mark = element("span", "", MARKS[verdict] + "\u00a0");
  mark.setAttribute("aria-hidden", "true");
  const said = element("span", "unseen", ` (${number < 0 ? "not asked" : VERDICTS[verdict]})`);
  return element("span", CLASSES[verdict], mark, text, said, count > 1 ? ` \u00d7${count}` : "");
}

/** The different replies of a run in some variants, the most common first. */
function counts(run, variants) {
  const known = new Map();
  for (const at of variants) {
    if (run[at] < 0) continue;
    const [verdict, answer] = replies[run[at]], key = `${verdict} ${answer}`, row = known.get(key) || [run[at], 0];
    row[1]++;
    known.set(key, row);
  }
  return [...known.values()].sort((a, b) => b[1] - a[1]);
}

const list = part("list"), narrow = matchMedia("(max-width: 40rem)");
const heightOf = () => narrow.matches ? 54 + 21 * runs.length : 52;
const filter = { group: -1, levels: factors.map(() => -1), show: "all", text: "" };
let rows = [], selected = 0, rowHeight = heightOf();

/** What an item asks, its gold, and the answers of each run, for a row. */
function cellsOf([at, state, variants]) {
  const item = items[at], whole = texts[item[2]].replaceAll("\n", " / "), isLong = whole.length > 100 && whole !== texts[item[2]];
  const asked = isLong ? `${whole.slice(0, 48)} \u2026 ${whole.slice(-48)}` : whole, of = groups.length > 1 ? [" ", element("small", "", groups[item[0]][0])] : [];
  return [
    element("div", "cell", asked.slice(0, 400), ...of),
    element("div", "cell", element("span", "soft", narrow.matches ? "right: " : ""), texts[item[3]]),
    ...item.slice(FIRST_RUN).map((run, number) => {
      const marks = counts(run, variants).flatMap(([reply, count], place) => [place ? "  " : "", shownReply(reply, count)]);
      const count = state.differ[number], other = count ? [element("mark", "", `\u2260\u00a0${count}`), " "] : [];
      return element("div", "cell", element("span", "of", runs[number] + ": "), ...other, ...marks);
    }),
  ];
}

function rowOf(position) {
  const cells = cellsOf(rows[position]), row = element("div", "row", ...cells);
  row.id = "row-" + position;
  row.setAttribute("role", "row");
  row.setAttribute("aria-rowindex", position + 2);
  row.style.top = position * rowHeight + "px";
  for (const cell of cells) cell.setAttribute("role", "gridcell");
  row.addEventListener("click", () => select(position, true));
  return row;
}

let drawn = new Map();
/** Draw the rows on the screen, and some around. */
function draw() {
  const first = Math.max(0, Math.floor(list.scrollTop / rowHeight) - 8), before = drawn;
  const end = Math.min(rows.length, Math.ceil((list.scrollTop + list.clientHeight) / rowHeight) + 8);
  drawn = new Map();
  for (let position = Math.min(first, rows.length); position < end; position++) drawn.set(position, before.get(position) || rowOf(position));
  for (const [position, row] of before) if (drawn.get(position) !== row) row.remove();
  for (const [position, row] of drawn) {
    if (!row.isConnected) part("rows").append(row);
    row.setAttribute("aria-selected", position === selected);
  }
  if (rows.length) list.setAttribute("aria-activedescendant", "row-" + selected);
  else list.removeAttribute("aria-activedescendant");
}

/** Make a row the chosen one, bring it on the screen, and show its item; `isOpened`: by the reader,
    so the address of the page becomes that of the item. */
function select(position, isOpened = false) {
  selected = Math.max(0, Math.min(rows.length - 1, position));
  const above = part("rows").offsetTop, top = selected * rowHeight, height = list.clientHeight - above;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + rowHeight > list.scrollTop + height) list.scrollTop = top + rowHeight - height;
  draw();
  showItem();
  if (isOpened && rows.length) history.replaceState(null, "", addressOf(items[rows[selected][0]]));
}

const addressOf = item => "#q=" + [groups[item[0]][0], texts[item[1]]].map(encodeURIComponent).join("/");

/** Choose the item that the address of the page names, whatever the filters are. */
function openAddress() {
  const at = location.hash ? items.findIndex(item => addressOf(item) === location.hash) : -1;
  if (at < 0) return;
  Object.assign(filter, { group: -1, levels: factors.map(() => -1), show: "all", text: "" });
  part("text").value = "";
  for (const menu of part("filters").querySelectorAll("select")) menu.selectedIndex = 0;
  refresh();
  select(rows.findIndex(([of]) => of === at));
  part("questions").scrollIntoView();
}

function showItem() {
  const shown = part("item");
  if (!rows.length) return shown.replaceChildren(element("p", "soft", "Nothing passes the filters."));
  const [at, , variants] = rows[selected], item = items[at];
  const asked = variants.filter(place => item.slice(FIRST_RUN).some(run => run[place] >= 0));
  const own = new Map(asked.map(place => [place, ownLines(item, place)])), base = own.get(asked[0]);
  const blocks = runs.length > 1 ? [element("div", "variant heads", element("div"), ...runs.map(run => element("div", "name", run)))] : [];
  for (const place of asked) {
    const sent = item[PROMPTS][place], lines = own.get(place), places = aligned(lines, base, alike);
    const name = element("div", "name", ...lines.flatMap((line, of) => marked(line, base[places[of]])));
    if (!data.patterns || !lines.length) name.prepend(element("small", "", texts[groups[item[0]][1][place]]), lines.length ? "\n" : "");
    if (sent >= 0 && prompts[sent].length > lines.length) {
      name.append(element("details", "", element("summary", "soft", "Prompt"), element("pre", "", prompts[sent].map(line => texts[line]).join("\n"))));
    }
    const answers = item.slice(FIRST_RUN).map((run, of) => {
      const first = item[FIRST_RUN][runs.length > 1 ? place : asked[0]];
      const other = differs(first, run[place]) ? [element("mark", "", "\u2260"), " "] : [];
      const cell = element("div", "reply", element("span", "of", runs[of] + ": "), ...other, shownReply(run[place]));
      const said = run[place] < 0 ? -1 : replies[run[place]][2];
      if (said >= 0) cell.append(element("small", "", texts[said]));
      return cell;
    });
    blocks.push(element("div", "variant", name, ...answers));
  }
  const about = element("p", "soft", `${groups[item[0]][0]}, ${texts[item[1]]}. Right answer: `, element("b", "", texts[item[3]]));
  shown.replaceChildren(about, ...blocks);
  shown.scrollTop = 0;
}

const counted = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

/** Filter again, and stay at the item that was chosen if it is still there. */
function refresh() {
  const chosen = rows.length ? rows[selected][0] : -1;
  rows = filtered();
  part("rows").replaceChildren();
  drawn = new Map();
  part("count").textContent = `${rows.length.toLocaleString("en")} of ${counted(items.length, words[1])}`;
  part("rows").style.height = rows.length * rowHeight + "px";
  list.setAttribute("aria-rowcount", rows.length + 1);
  select(Math.max(0, rows.findIndex(([at]) => at === chosen)));
}

function menu(name, choices, changed) {
  const made = element("select", "");
  made.setAttribute("aria-label", name);
  choices.forEach(([value, text]) => made.append(new Option(text, value)));
  made.addEventListener("change", () => { changed(made.value); refresh(); });
  part("count").before(made);
}

document.documentElement.style.setProperty("--runs", runs.length);
document.body.classList.toggle("several", runs.length > 1);
document.body.classList.toggle("many", runs.length > 2);
list.firstElementChild.append(...[words[1], "right answer", ...runs].map(head => element("div", "cell", head)));
for (const head of list.firstElementChild.children) head.setAttribute("role", "columnheader");
if (groups.length > 1) menu(words[0], [[-1, `all ${words[0]}s`], ...groups.map(([name], at) => [at, name])], value => { filter.group = Number(value); });
factors.forEach(([name, levels], at) => menu(name, [[-1, `${name}: all`], ...levels.map((level, of) => [of, `${name}: ${level}`])], value => { filter.levels[at] = Number(value); }));
menu("show", SHOWN, value => { filter.show = value; });
part("text").addEventListener("input", () => { filter.text = part("text").value; refresh(); });
const fit = () => {
  rowHeight = heightOf();
  document.documentElement.style.setProperty("--height", rowHeight + "px");
  refresh();
};
let isDue = false;
list.addEventListener("scroll", () => {
  if (!isDue) requestAnimationFrame(() => { isDue = false; draw(); });
  isDue = true;
});
new ResizeObserver(() => requestAnimationFrame(draw)).observe(list);
narrow.addEventListener("change", fit);
list.addEventListener("keydown", event => {
  const page = Math.max(1, Math.floor(list.clientHeight / rowHeight) - 1);
  const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length };
  if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  select(selected + moves[event.key], true);
});
part("text").addEventListener("keydown", event => {
  if (["ArrowDown", "Enter", "Escape"].includes(event.key)) { event.preventDefault(); list.focus(); }
});
addEventListener("keydown", event => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
  event.preventDefault();
  part("text").select();
});
const other = runs.length > 1 ? `that of ${runs[0]}, whose prompts are shown` : `that to the first ${words[2]}`;
part("legend").textContent = `\u2713 right, \u2717 wrong, ${data.patterns ? `\u2248 right for another ${words[1]}, ` : ""}\u2013 no answer; \u2260 another answer than ${other}. Keys: \u2191 \u2193, / finds a text.${data.patterns ? " [Y] is the place of the answer." : ""}`;
addEventListener("hashchange", openAddress);
const PRINTED = 50;
addEventListener("beforeprint", () => {
  const heads = element("tr", "", ...[words[1], "right answer", ...runs].map(head => element("th", "", head)));
  const shown = rows.slice(0, PRINTED).map(row => element("tr", "", ...cellsOf(row).map(cell => element("td", "", ...cell.childNodes))));
  const rest = rows.length > PRINTED ? `The first ${PRINTED} of ${counted(rows.length, words[1])}; the page on a screen has all of them.` : "";
  part("printed").replaceChildren(element("table", "", element("thead", "", heads), element("tbody", "", ...shown)), element("p", "", rest));
});
fit();
openAddress();
}
