"use strict";
(() => {
  const PAGE = 200, ALL = 500;
  const LONG = new Set(["kernels"]);
  const NAMES = "implementation", CASE = "case";
  const tables = JSON.parse(document.getElementById("tables").textContent);
  for (const table of Object.values(tables)) {
    for (const column of table.columns) if (column.values.length < table.count) column.values = new Array(table.count).fill(column.values[0]);
  }
  const collator = new Intl.Collator("en", { numeric: true });

  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  /** A text that may be broken after each comma. */
  const breakable = (text) => text.split(/(?<=,)/).flatMap((part) => [part, make("wbr")]);

  /** A number with a limited number of significant digits. Counts keep all digits. A text stands for an infinity. */
  const format = (value, digits, whole) => {
    if (value === null) return "";
    if (typeof value === "string") return value;
    const magnitude = Math.floor(Math.log10(Math.abs(value)));
    if (whole || value === 0) return value.toLocaleString("en");
    if (magnitude < -4 || magnitude >= 9) return value.toExponential(digits - 1);
    const decimals = Math.max(0, digits - 1 - magnitude);
    return value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  };

  const textOf = (column, row) => (column.texts ? column.texts[column.values[row]] : format(column.values[row], Math.min(4, column.digits), column.whole));

  /** The sort key of each row: a number, or the rank of its text. Null comes last in either direction. */
  const keysOf = (column) => {
    if (!column.texts) return column.values.map((value) => (value === null ? null : Number(String(value).replace("inf", "Infinity"))));
    const rank = new Map([...column.texts.keys()].sort((a, b) => collator.compare(column.texts[a], column.texts[b])).map((place, index) => [place, index]));
    return column.values.map((place) => (column.texts[place] === "" ? null : rank.get(place)));
  };

  /** An SVG element; `attributes` are set on it. */
  const draw = (tag, attributes = {}, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };

  const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

  /** The samples of a row in ascending order; null if there are none. Two digits encode each, from least to most. */
  const samplesOf = (kept, row) => {
    if (!kept || kept.least[row] === null) return null;
    const [least, most] = [kept.least[row], kept.most[row]];
    const begin = 2 * kept.marks * kept.least.slice(0, row).filter((us) => us !== null).length;
    return Array.from({ length: kept.marks }, (_, mark) => {
      const [high, low] = [0, 1].map((digit) => DIGITS.indexOf(kept.text[begin + 2 * mark + digit]));
      return least + (most - least) * (64 * high + low) / 4095;
    });
  };

  /** A histogram of samples in ascending order. A line marks the median, and a shade the middle half of the samples. */
  const histogram = (samples) => {
    const [width, height, foot] = [Math.max(200, Math.min(640, 0.94 * innerWidth - 60)), 130, 22];
    const at = (part) => {
      const place = part * (samples.length - 1);
      const [low, high] = [samples[Math.floor(place)], samples[Math.ceil(place)]];
      return low + (high - low) * (place - Math.floor(place));
    };
    const [least, most] = [at(0), at(1)];
    const span = most - least || 1;
    const bins = new Array(Math.min(40, Math.max(8, Math.ceil(2 * Math.cbrt(new Set(samples).size))))).fill(0);
    samples.forEach((us) => { bins[Math.min(bins.length - 1, Math.floor((us - least) / span * bins.length))] += 1; });
    const x = (us) => (us - least) / span * width;
    const tallest = Math.max(...bins);
    const figure = draw("svg", { viewBox: `-4 -14 ${width + 8} ${height + foot + 14}`, role: "img" });
    figure.append(draw("rect", { class: "half", x: x(at(0.25)), y: 0, width: Math.max(1, x(at(0.75)) - x(at(0.25))), height }));
    bins.forEach((count, place) => {
      const tall = count / tallest * height;
      figure.append(draw("rect", { class: "bin", x: place * width / bins.length + 0.5, y: height - tall, width: width / bins.length - 1, height: tall }));
    });
    const text = (us) => `${format(us, 4)} us`;
    figure.append(draw("line", { class: "median", x1: x(at(0.5)), x2: x(at(0.5)), y1: -2, y2: height }));
    const anchor = x(at(0.5)) < 90 ? "start" : x(at(0.5)) > width - 90 ? "end" : "middle";
    figure.append(draw("text", { x: x(at(0.5)), y: -5, "text-anchor": anchor }, `median ${text(at(0.5))}`));
    figure.append(draw("text", { x: 0, y: height + 16 }, text(least)), draw("text", { x: width, y: height + 16, "text-anchor": "end" }, text(most)));
    figure.setAttribute("aria-label", `Distribution of the samples: least ${text(least)}, a quarter below ${text(at(0.25))}, median ${text(at(0.5))}, three quarters below ${text(at(0.75))}, most ${text(most)}.`);
    return figure;
  };

  class Explorer {
    constructor(root, table, title) {
      this.root = root;
      this.table = table;
      this.title = title;
      this.columns = table.columns.filter((column) => !column.detail);
      this.filters = new Map();
      this.words = [];
      this.sorted = null;
      this.shown = PAGE;
      this.haystack = Array.from({ length: table.count }, (_, row) =>
        table.columns.filter((column) => column.texts).map((column) => textOf(column, row)).join(" ").toLowerCase());
      this.build();
      this.update();
    }

    build() {
      this.count = make("p", { className: "count" });
      this.count.setAttribute("aria-live", "polite");
      this.body = make("tbody");
      this.heads = this.columns.map((column) => this.head(column));
      const head = make("thead", {}, make("tr", {}, ...this.heads));
      const scroll = make("div", { className: "scroll", tabIndex: 0 }, make("table", {}, head, this.body));
      scroll.setAttribute("role", "region");
      scroll.setAttribute("aria-label", this.title);
      this.more = make("button", { type: "button", className: "more", onclick: () => { this.shown += 5 * PAGE; this.render(); } });
      this.root.append(this.controls(), this.count, scroll, this.more);
    }

    head(column) {
      const button = make("button", { type: "button", title: column.about, onclick: () => this.sortBy(column) }, column.head);
      const cell = make("th", { scope: "col", className: column.texts ? "" : "n" }, button);
      return cell;
    }

    controls() {
      const controls = make("div", { className: "controls" });
      for (const column of this.columns.filter((each) => each.choices)) {
        const select = make("select", { onchange: () => this.filter(column, select.value) }, make("option", { value: "" }, "all"));
        [...column.texts.keys()].sort((a, b) => collator.compare(column.texts[a], column.texts[b]))
          .forEach((place) => select.append(make("option", { value: String(place) }, column.texts[place] || "(none)")));
        select.dataset.column = column.head;
        controls.append(make("label", {}, column.head, select));
      }
      const search = make("input", { type: "search", placeholder: "4096 causal", oninput: () => this.search(search.value) });
      controls.append(make("label", {}, "search", search));
      controls.append(make("button", { type: "button", className: "reset", onclick: () => this.reset() }, "Reset"));
      this.inputs = controls;
      return controls;
    }

    filter(column, place) {
      if (place === "") this.filters.delete(column);
      else this.filters.set(column, Number(place));
      this.update();
    }

    search(text) {
      this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
      this.update();
    }

    reset() {
      this.inputs.querySelectorAll("select, input").forEach((input) => { input.value = ""; });
      this.filters.clear();
      this.words = [];
      this.sorted = null;
      this.update();
    }

    sortBy(column) {
      const again = this.sorted && this.sorted.column === column;
      const down = again ? !this.sorted.down : !column.texts && !/us$|^error|^±/.test(column.head);
      this.sorted = { column, down };
      this.update();
    }

    update() {
      const rows = [];
      for (let row = 0; row < this.table.count; row += 1) {
        const chosen = [...this.filters].every(([column, place]) => column.values[row] === place);
        if (chosen && this.words.every((word) => this.haystack[row].includes(word))) rows.push(row);
      }
      const { column, down } = this.sorted ?? {};
      if (column) column.keys ??= keysOf(column);
      const sign = down ? -1 : 1;
      const order = (a, b) => {
        if (!column) return a - b;
        const [x, y] = [column.keys[a], column.keys[b]];
        if (x === null || y === null) return (x === null) - (y === null) || a - b;
        return sign * (x - y) || a - b;
      };
      rows.sort((a, b) => this.severity(a) - this.severity(b) || order(a, b));
      this.heads.forEach((cell, place) => {
        if (this.sorted && this.columns[place] === this.sorted.column) cell.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
        else cell.removeAttribute("aria-sort");
      });
      this.rows = rows;
      this.shown = rows.length > ALL ? PAGE : ALL;
      this.render();
    }

    status(row) {
      const column = this.columns.find((each) => each.head === "status");
      return column ? textOf(column, row) : "failed";
    }

    /** The rows that failed stand before all others, wrong ones first, whatever the order. */
    severity(row) {
      return this.table.severity?.[row] ?? 2;
    }

    render() {
      const part = this.rows.slice(0, this.shown);
      this.body.replaceChildren(...part.map((row) => make("tr", {}, ...this.columns.map((column) => this.cell(column, row)))));
      this.count.textContent = `${this.rows.length.toLocaleString("en")} of ${this.table.count.toLocaleString("en")} rows`
        + (part.length < this.rows.length ? `; the first ${part.length} are shown` : "");
      this.more.hidden = part.length >= this.rows.length;
      this.more.textContent = `Show ${Math.min(5 * PAGE, this.rows.length - part.length).toLocaleString("en")} more`;
    }

    cell(column, row) {
      const text = textOf(column, row);
      if (column.head === NAMES) {
        const name = make("span", { className: "name" }, text);
        name.style.setProperty("--c", `var(--${text.split("/")[0]}, var(--muted))`);
        const cell = make("td", {}, make("button", { type: "button", onclick: () => this.details(row) }, name));
        if (this.severity(row) < 2) cell.append(make("small", { className: "bad phone" }, this.status(row)));
        return cell;
      }
      const cell = make("td", { className: column.texts ? "" : "n" });
      if (column.head === CASE) { cell.className = "case"; cell.append(...breakable(text)); } else cell.append(text);
      if (LONG.has(column.head)) { cell.className = "long"; cell.title = text; }
      if (column.head === "status") cell.className = /wrong|error|timeout|suspect/.test(text) ? "bad" : text === "ok" ? "" : "dim";
      return cell;
    }

    details(row) {
      const dialog = document.getElementById("row");
      const list = dialog.querySelector("dl");
      dialog.querySelector("h2").textContent = this.table.columns.filter((column) => ["operation", "case", "dtype", NAMES].includes(column.head))
        .map((column) => textOf(column, row)).join(" ");
      list.replaceChildren();
      const samples = samplesOf(this.table.samples, row);
      const figure = dialog.querySelector("figure");
      figure.hidden = !samples;
      figure.replaceChildren(...(samples ? [make("figcaption", {}, "The samples of device us; the half of them about the median is shaded"), histogram(samples)] : []));
      const name = this.table.columns.find((column) => column.head === NAMES);
      figure.style.setProperty("--c", `var(--${textOf(name, row).split("/")[0]}, var(--muted))`);
      for (const column of this.table.columns) {
        const text = textOf(column, row);
        if (text !== "") list.append(make("dt", { title: column.about }, column.head), make("dd", {}, text));
      }
      dialog.showModal();
    }
  }

  const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const store = (theme) => { try { localStorage.setItem("theme", theme); } catch { /* a page from a file may have no storage */ } };
  const dress = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  const radios = document.querySelectorAll('input[name="theme"]');
  radios.forEach((radio) => radio.addEventListener("change", () => { dress(radio.value); store(radio.value); }));
  const known = [...radios].find((radio) => radio.value === stored());
  if (known) { known.checked = true; dress(known.value); }

  for (const root of document.querySelectorAll(".explorer")) {
    const title = root.closest("section").querySelector("h2").textContent;
    root.explorer = new Explorer(root, tables[root.dataset.table], title);
  }
  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
})();
