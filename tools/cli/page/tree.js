// SPDX-License-Identifier: Apache-2.0
//
// The page of `cairn tree --html`. A row is a branch; only rows within sight are in the document. Texts of the
// store enter it as text nodes alone.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const NAMES = { e: "evicted", a: "approximate", l: "log", t: "table", n: "none" };
  const WORDS = { e: "evicted", a: "approximate", l: "in the log", t: "in a table", n: "no KV" };
  const ROWS_AT_FIRST = 400, ROWS_IN_PRINT = 5000, UNITS = 1000, TAIL = 8;
  const count = data.up.length;

  // --- The rows: each branch, followed by those that leave it
  const parent = new Int32Array(count), depth = new Int32Array(count), below = new Int32Array(count);
  const ids = new Float64Array(count), firstNode = new Int32Array(count + 1);
  const nodeIds = new Float64Array(data.nid.length);
  const folded = new Uint8Array(count);
  let longest = 1;
  for (let row = 0, id = 0; row < count; ++row) {
    parent[row] = data.up[row] === 0 ? -1 : row - data.up[row];
    depth[row] = parent[row] < 0 ? 0 : depth[parent[row]] + 1;
    ids[row] = id += data.id[row];
    firstNode[row + 1] = firstNode[row] + data.nodes[row];
    longest = Math.max(longest, data.len[row]);
  }
  for (let node = 0, id = 0; node < nodeIds.length; ++node) nodeIds[node] = id += data.nid[node];
  for (let row = count - 1; row > 0; --row) if (parent[row] >= 0) below[parent[row]] += below[row] + 1;
  const label = (row) => data.name[row] || "#" + ids[row];
  const runsOf = (row) => {
    let at = data.at[row];
    const runs = data.kv[row].matchAll(/([a-z])(\d+)/g);
    return Array.from(runs, (run) => ({ kind: run[1], begin: at, end: at += +run[2] }));
  };

  // --- Words
  const number = (n) => n.toLocaleString("en-US");
  const plural = (n, noun) => number(n) + " " + noun + (n === 1 ? "" : /ch$/.test(noun) ? "es" : "s");
  const bytes = (n) => {
    let unit = 0;
    for (; n >= 1024 && unit < 6; ++unit) n /= 1024;
    const digits = Number.isInteger(n) || n >= 100 ? 0 : 1;
    return n.toFixed(digits) + " " + ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit];
  };
  const ago = (seconds) => {
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
      if (seconds >= size) return Math.floor(seconds / size) + " " + unit;
    }
    return Math.max(0, Math.floor(seconds)) + " s";
  };
  const time = (seconds) => new Date(seconds * 1000).toISOString().replace("T", " ").replace(/\..*/, " UTC");

  // --- Elements
  const make = (tag, properties = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(properties)) {
      if (key.includes("-") || key === "role") element.setAttribute(key, value);
      else element[key] = value;
    }
    element.append(...children);
    return element;
  };
  const SVG = "http://www.w3.org/2000/svg";
  const shape = (style, d) => {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", style);
    path.setAttribute("d", d);
    return path;
  };
  const drawing = (width, height, ...shapes) => {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    svg.append(...shapes);
    return svg;
  };
  const sample = (kind) => drawing(26, 8, shape(NAMES[kind], "M0 4H26"));

  // --- What is seen: positions from `from` on, `span` of them, and the rows that are not folded away
  let from = 0, span = longest, picked = -1, seen = [], matches = [], match = -1, printing = false;
  const narrow = matchMedia("screen and (max-width: 760px)");
  const rows = $("rows"), list = $("list");
  const rowHeight = () => narrow.matches ? 44 : 26;  // --row of the style.
  const x = (position) => (position - from) / span * UNITS;
  const inSight = (at) => Math.min(UNITS + 50, Math.max(-50, at));
  const fix = (at) => +at.toFixed(1);

  function listSeen() {
    seen = [];
    let row = 0;
    data.forests.forEach((forest, index) => {
      seen.push(-1 - index);
      for (const end = row + forest.rows; row < end;) {
        seen.push(row);
        row += folded[row] ? below[row] + 1 : 1;
      }
    });
  }
  const seenAt = (row) => {
    let low = 0, high = seen.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      // A heading stands before the rows of its forest.
      const there = seen[middle] < 0 ? starts[-1 - seen[middle]] - 0.5 : seen[middle];
      if (there === row) return middle;
      if (there < row) low = middle + 1;
      else high = middle - 1;
    }
    return -1;
  };
  const starts = [];
  data.forests.reduce((start, forest) => (starts.push(start), start + forest.rows), 0);

  // Stems are strokes down to lines that leave. By place: how many pass the row that is drawn next.
  const place = (row) => Math.round(x(data.at[row]));
  function addStems(stems, child, end) {
    for (; child <= end; child += below[child] + 1) stems.set(place(child), (stems.get(place(child)) || 0) + 1);
  }
  function stemsAbove(row) {
    const stems = new Map();
    for (let child = row; child >= 0 && parent[child] >= 0; child = parent[child]) {
      const above = parent[child];
      addStems(stems, child === row ? child : child + below[child] + 1, above + below[above]);
    }
    return stems;
  }

  function plotOf(row, stems) {
    const shapes = [], y = narrow.matches && !printing ? 74 : 50, own = place(row), height = 100;
    if (parent[row] >= 0) {
      const left = stems.get(own) - 1;
      if (left > 0) stems.set(own, left);
      else stems.delete(own);
    }
    let d = "";
    for (const at of stems.keys()) if (at === inSight(at)) d += `M${at} 0V${height}`;
    if (parent[row] >= 0 && !stems.has(own) && own === inSight(own)) d += `M${own} 0V${y}`;
    if (below[row] > 0 && !folded[row]) {
      const leaving = new Map();
      addStems(leaving, row + 1, row + below[row]);
      for (const [at, many] of leaving) {
        if (at === inSight(at)) d += `M${at} ${y}V${height}`;
        stems.set(at, (stems.get(at) || 0) + many);
      }
    }
    if (d) shapes.push(shape("stem", d));
    const drawn = {};
    let least = -Infinity;
    for (const run of runsOf(row)) {
      const begin = inSight(x(run.begin)), end = inSight(x(run.end));
      if (end <= least + 0.5) continue;  // Too narrow to be seen.
      drawn[run.kind] = (drawn[run.kind] || "") + `M${fix(Math.max(begin, least))} ${y}H${fix(end)}`;
      least = end;
    }
    for (const kind of Object.keys(drawn)) shapes.push(shape(NAMES[kind], drawn[kind]));
    const end = x(data.len[row]);
    if (end === inSight(end)) shapes.push(shape("end", `M${fix(end)} ${y}h0.01`));
    return make("div", { className: "plot" }, drawing(UNITS, height, ...shapes));
  }

  // A name that does not fit loses its middle: names often differ in their ends. One that is not ASCII may be written
  // from right to left, and stays in one piece.
  function labelElement(row) {
    const text = label(row), ends = text.length > 3 * TAIL && /^[ -~]*$/.test(text);
    const element = make("span", { className: "label", title: text, dir: "auto" });
    element.append(make("span", { className: "front" }, ends ? text.slice(0, -TAIL) : text));
    if (ends) element.append(make("span", { className: "tail" }, text.slice(-TAIL)));
    return element;
  }

  function rowElement(row, stems) {
    const children = below[row] > 0, name = make("div", { className: "name" });
    name.style.paddingInlineStart = 6 + Math.min(depth[row], 8) * (narrow.matches ? 7 : 12) + "px";
    const toggles = { className: "toggle", tabIndex: -1, "aria-label": folded[row] ? "Unfold" : "Fold" };
    name.append(children ? make("button", toggles, folded[row] ? "▸" : "▾") : make("span", { className: "toggle" }));
    name.append(labelElement(row));
    const hidden = folded[row] ? "+" + number(below[row]) + " · " : "";
    const meta = hidden + number(data.len[row]) + " · " + ago(data.used[row]);
    name.append(make("span", { className: "meta", title: "tokens · last use" }, meta));
    const style = "row" + (row === picked ? " picked" : "") + (isMatch(row) ? " match" : "");
    const item = { className: style, id: "row" + row, role: "treeitem", "aria-level": depth[row] + 1 };
    const element = make("div", { ...item, "aria-selected": row === picked }, name, plotOf(row, stems));
    if (children) element.setAttribute("aria-expanded", !folded[row]);
    element.dataset.row = row;
    return element;
  }

  const spacer = (height) => {
    const element = make("div", { className: "spacer" });
    element.style.height = height + "px";
    return element;
  };
  function draw() {
    const height = rowHeight();
    const first = printing ? 0 : Math.max(0, Math.floor(rows.scrollTop / height) - 10);
    const last = printing ? Math.min(seen.length, ROWS_IN_PRINT)
                          : Math.min(seen.length, Math.ceil((rows.scrollTop + rows.clientHeight) / height) + 10);
    const parts = [spacer(first * height)];
    let stems = null;
    for (let i = first; i < last; ++i) {
      const row = seen[i];
      if (row < 0) {
        const text = data.forests[-1 - row].heading;
        parts.push(make("div", { className: "heading", title: text, dir: "auto" }, text));
        stems = new Map();
        continue;
      }
      stems = stems || stemsAbove(row);
      parts.push(rowElement(row, stems));
    }
    if (printing && last < seen.length) parts.push(make("p", {}, "and " + plural(seen.length - last, "more row")));
    parts.push(spacer((seen.length - last) * height));
    list.replaceChildren(...parts);
    if (picked >= 0 && $("row" + picked)) rows.setAttribute("aria-activedescendant", "row" + picked);
    else rows.removeAttribute("aria-activedescendant");
  }
  function drawRuler() {
    const ruler = $("ruler"), width = Math.max(1, ruler.clientWidth - 14), ticks = [];
    let step = 1;
    for (let i = 0; step * width / span < 110; ++i) step = [1, 2, 5][(i + 1) % 3] * 10 ** Math.floor((i + 1) / 3);
    for (let at = Math.ceil(from / step) * step; at <= from + span; at += step) {
      const share = (at - from) / span, tick = make("span", {}, number(at));
      tick.style.left = 7 + share * width + "px";
      tick.style.transform = `translateX(${share < 0.08 ? 0 : share > 0.92 ? -100 : -50}%)`;
      ticks.push(tick);
    }
    ruler.replaceChildren(...ticks);
  }
  let due = false;
  function drawSoon() {
    if (due) return;
    due = true;
    requestAnimationFrame(() => { due = false; draw(); });
  }
  const drawAll = () => { drawRuler(); draw(); };

  // --- Folding, zoom, picking
  function setFolded(row, value) {
    folded[row] = value;
    listSeen();
    draw();
  }
  function foldAll(value) {
    for (let row = 0; row < count; ++row) folded[row] = value && below[row] > 0;
    if (picked >= 0) reveal(picked);
    listSeen();
    if (picked >= 0) scrollTo(picked);
    draw();
  }
  function reveal(row) {
    for (let above = parent[row]; above >= 0; above = parent[above]) folded[above] = 0;
    listSeen();
  }
  function scrollTo(row) {
    const height = rowHeight(), top = seenAt(row) * height, room = rows.clientHeight - 20;
    if (top < rows.scrollTop) rows.scrollTop = top;
    else if (top + height > rows.scrollTop + room) rows.scrollTop = top + height - room;
  }
  function zoom(factor, around = from + span / 2) {
    const next = Math.min(longest, Math.max(Math.min(longest, 8), span * factor));
    from = around - (around - from) * next / span;
    span = next;
    pan(0);
  }
  // All that is seen now; what is folded may reach further, to where zooming out shows it.
  function fit() {
    let end = 1;
    for (const row of seen) if (row >= 0) end = Math.max(end, data.len[row]);
    from = 0;
    span = end;
    drawAll();
  }
  function pan(by) {
    from = Math.min(longest - span, Math.max(0, from + by));
    drawAll();
  }
  function pick(row) {
    picked = row;
    if (row >= 0) { reveal(row); showDetails(row); scrollTo(row); }
    else showHint();
    draw();
  }

  // --- Details
  const link = (row) => {
    const anchor = make("a", { className: "link", href: "#", dir: "auto" }, label(row));
    anchor.onclick = (event) => { event.preventDefault(); pick(row); rows.focus(); };
    return anchor;
  };
  function showHint() {
    const details = $("details");
    details.className = "empty";
    const hint = count ? "Pick a branch to see what it holds." : "The store has no branches.";
    details.replaceChildren(make("p", { className: "hint" }, hint));
  }
  const pair = (to, word, ...value) => to.append(make("dt", {}, word), make("dd", {}, ...value));
  const states = (many, last) => many ? plural(many, "state") + ", last at " + number(last) : "";
  function nodeItem(node, begin) {
    const end = begin + data.nlen[node], item = make("li", {}, `#${nodeIds[node]} [${number(begin)}, ${number(end)})`);
    const facts = [];
    if (data.nlog[node]) facts.push(bytes(data.nlog[node]) + " in the log");
    if (data.ntab[node]) facts.push(bytes(data.ntab[node]) + " in tables");
    if (data.sam[node]) facts.push("sampler: " + states(data.sam[node], end - data.saml[node]));
    if (data.met[node]) facts.push("metadata: " + states(data.met[node], end - data.metl[node]));
    const spans = data.spans[node];
    if (spans) {
      const first = spans.first.map(([b, e, atomic]) => `[${number(b)}, ${number(e)})${atomic ? " atomic" : ""}`);
      if (spans.count > first.length) first.push("…");
      facts.push(plural(spans.count, "content span") + ": " + first.join(", "));
    }
    if (facts.length) item.append(": " + facts.join("; "));
    return item;
  }
  function showDetails(row) {
    const details = $("details");
    const close = make("button", { className: "close", title: "Close ( Esc )", "aria-label": "Close" }, "×");
    close.onclick = () => { pick(-1); rows.focus(); };
    details.className = "";
    const facts = make("dl");
    pair(facts, "id", "#" + ids[row]);
    pair(facts, "tokens", number(data.len[row]));
    if (parent[row] >= 0) pair(facts, "leaves", link(parent[row]), " at " + number(data.at[row]));
    if (data.rest[row] !== undefined) pair(facts, "KV", "can be restored up to " + number(data.rest[row]));
    pair(facts, "own", bytes(data.own[row]) + ", gone when it is dropped");
    pair(facts, "shared", bytes(data.shared[row]) + ", with other branches");
    const used = data.made - data.used[row];
    pair(facts, "last use", time(used) + ", " + ago(data.used[row]) + " before this picture");
    pair(facts, "changed", time(used - data.updated[row]));
    pair(facts, "made", time(used - data.created[row]));
    const keep = data.keep[row];
    const words = keep && [keep[0] ? "pinned" : "", "priority " + keep[1], keep[2] ? "ttl " + ago(keep[2]) : ""];
    if (keep) pair(facts, "kept", words.filter(Boolean).join(", "));
    details.replaceChildren(close, make("h2", { dir: "auto" }, label(row)), facts);
    const runs = runsOf(row), nodes = data.nodes[row];
    if (runs.length) {
      const where = make("ul", { className: "where" });
      for (const run of runs.slice(0, 40)) {
        const text = `[${number(run.begin)}, ${number(run.end)}) ${WORDS[run.kind]}`;
        where.append(make("li", {}, sample(run.kind), text));
      }
      if (runs.length > 40) where.append(make("li", {}, "and " + number(runs.length - 40) + " more"));
      details.append(make("h3", {}, "Where it lies"), where);
    }
    if (nodes) {
      const items = make("ul");
      let begin = data.at[row];
      for (let i = 0; i < Math.min(nodes, 40); ++i) {
        const node = firstNode[row] + i;
        items.append(nodeItem(node, begin));
        begin += data.nlen[node];
      }
      if (nodes > 40) items.append(make("li", {}, "and " + number(nodes - 40) + " more"));
      details.append(make("h3", {}, plural(nodes, "node") + " of its own line"), items);
    }
    if (below[row]) {
      const leaving = make("ul");
      let many = 0;
      for (let child = row + 1; child <= row + below[row]; child += below[child] + 1) {
        if (++many <= 20) leaving.append(make("li", {}, link(child), " at " + number(data.at[child])));
      }
      if (many > 20) leaving.append(make("li", {}, "and " + number(many - 20) + " more"));
      details.append(make("h3", {}, plural(many, "branch") + (many === 1 ? " leaves it" : " leave it")), leaving);
    }
    details.scrollTop = 0;
  }

  // --- Search
  const lower = [];
  const isMatch = (row) => {
    let low = 0, high = matches.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (matches[middle] === row) return true;
      if (matches[middle] < row) low = middle + 1;
      else high = middle - 1;
    }
    return false;
  };
  function search() {
    const text = $("search").value.trim().toLowerCase();
    matches = [];
    match = -1;
    if (text) {
      for (let row = 0; row < count; ++row) {
        if (lower[row] === undefined) lower[row] = (data.name[row] + " #" + ids[row]).toLowerCase();
        if (lower[row].includes(text)) matches.push(row);
      }
    }
    if (matches.length) nextMatch(1);
    else draw();
    showFound();
  }
  function nextMatch(by) {
    if (!matches.length) return;
    match = (match + by + matches.length) % matches.length;
    if (match < 0) match = 0;
    pick(matches[match]);
    showFound();
  }
  const showFound = () => {
    const text = matches.length ? number(match + 1) + " of " + number(matches.length) : "none";
    $("found").textContent = $("search").value.trim() ? text : "";
  };

  // --- Keys and pointers
  const KEYS = [["↑ ↓ Page Home End", "move"], ["→", "unfold, or to the first branch that leaves"],
                ["←", "fold, or to the branch that it leaves"], ["Enter Space", "fold or unfold"],
                ["f u", "fold or unfold all"], ["+ - 0", "zoom in, out, what is seen"], ["[ ]", "move left, right"],
                ["/", "find"], ["n N", "next, previous match"], ["Esc", "close the details"], ["?", "this list"]];
  function step(by) {
    let at = picked < 0 ? (by > 0 ? -1 : seen.length) : seenAt(picked);
    const way = Math.sign(by);
    at = Math.min(seen.length - 1, Math.max(0, at + by));
    while (at >= 0 && at < seen.length && seen[at] < 0) at += way;
    if (at < 0 || at >= seen.length) { at = seen.findIndex((row) => row >= 0); if (by > 0) return; }
    if (at >= 0) pick(seen[at]);
  }
  function side(right) {
    if (picked < 0) return step(1);
    if (right && folded[picked]) return setFolded(picked, 0);
    if (right) return below[picked] ? pick(picked + 1) : undefined;
    if (below[picked] && !folded[picked]) return setFolded(picked, 1);
    if (parent[picked] >= 0) pick(parent[picked]);
  }
  const page = () => Math.max(1, Math.floor(rows.clientHeight / rowHeight()) - 2);
  const ACTIONS = {
    ArrowDown: () => step(1), ArrowUp: () => step(-1), PageDown: () => step(page()), PageUp: () => step(-page()),
    Home: () => step(-seen.length), End: () => step(seen.length),
    ArrowRight: () => side(true), ArrowLeft: () => side(false),
    Enter: () => toggle(picked), " ": () => toggle(picked), f: () => foldAll(1), u: () => foldAll(0),
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: fit,
    "[": () => pan(-span / 4), "]": () => pan(span / 4), "/": () => $("search").focus(),
    n: () => nextMatch(1), N: () => nextMatch(-1), Escape: () => pick(-1), "?": () => $("keys").showModal(),
  };
  const toggle = (row) => { if (row >= 0 && below[row]) setFolded(row, folded[row] ? 0 : 1); };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
    const tag = event.target.tagName;
    if (event.target === $("search")) {
      if (event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape" || event.key === "ArrowDown") rows.focus();
      else return;
      event.preventDefault();
      return;
    }
    if ((tag === "BUTTON" || tag === "A") && (event.key === "Enter" || event.key === " ")) return;
    const action = ACTIONS[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  list.addEventListener("click", (event) => {
    const element = event.target.closest(".row");
    if (!element) return;
    const row = +element.dataset.row;
    if (event.target.closest("button.toggle")) toggle(row);
    else pick(row);
    rows.focus({ preventScroll: true });
  });
  list.addEventListener("dblclick", (event) => {
    const element = event.target.closest(".row");
    if (element && !event.target.closest("button")) toggle(+element.dataset.row);
  });
  const plotWidth = () => Math.max(1, $("ruler").clientWidth - 14);
  rows.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const left = $("ruler").getBoundingClientRect().left + 7;
    if (event.ctrlKey) zoom(event.deltaY < 0 ? 0.8 : 1.25, from + span * (event.clientX - left) / plotWidth());
    else pan(span * Math.sign(event.deltaY || event.deltaX) / 10);
  }, { passive: false });
  let drag = null;
  rows.addEventListener("pointerdown", (event) => {
    if (event.target.closest(".plot") && span < longest) drag = event.clientX;
  });
  addEventListener("pointermove", (event) => {
    if (drag === null) return;
    pan(-(event.clientX - drag) / plotWidth() * span);
    drag = event.clientX;
  });
  addEventListener("pointerup", () => { drag = null; });
  rows.addEventListener("scroll", drawSoon);
  addEventListener("resize", drawAll);
  addEventListener("beforeprint", () => { printing = true; drawAll(); });
  addEventListener("afterprint", () => { printing = false; drawAll(); });
  $("search").addEventListener("input", search);
  $("fold").onclick = ACTIONS.f;
  $("unfold").onclick = ACTIONS.u;
  $("in").onclick = ACTIONS["+"];
  $("out").onclick = ACTIONS["-"];
  $("fit").onclick = ACTIONS[0];
  $("help").onclick = ACTIONS["?"];

  // --- The page
  // So many levels that the rows can be looked over.
  function foldAtFirst() {
    if (count <= ROWS_AT_FIRST) return;
    const levels = [];
    for (let row = 0; row < count; ++row) levels[depth[row]] = (levels[depth[row]] || 0) + 1;
    let level = 0, sum = levels[0];
    while (level + 1 < levels.length && sum + levels[level + 1] <= ROWS_AT_FIRST) sum += levels[++level];
    for (let row = 0; row < count; ++row) folded[row] = depth[row] >= level && below[row] > 0;
  }
  $("title").textContent = data.store;
  const held = plural(count, "branch") + " on " + plural(nodeIds.length, "node");
  $("summary").textContent = held + ", as of " + time(data.made) + ". Lengths are tokens.";
  const there = new Set();
  for (const kv of data.kv) for (const kind of kv.replace(/\d/g, "")) there.add(kind);
  for (const kind of "ltean") if (there.has(kind)) $("legend").append(make("li", {}, sample(kind), WORDS[kind]));
  for (const [key, what] of KEYS) $("keylist").append(make("dt", {}, make("kbd", {}, key)), make("dd", {}, what));
  foldAtFirst();
  listSeen();
  showHint();
  $("app").hidden = false;
  fit();
  rows.focus({ preventScroll: true });
})();
