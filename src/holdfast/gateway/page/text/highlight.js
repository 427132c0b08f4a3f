// Code to coloured pieces: { kind, text }. Pure, one pass, the same for all languages: comments,
// strings, numbers, keywords. It colours for reading and claims nothing about meaning.

const WORDS = {
  sh: `if then else elif fi for while until do done case esac in function return export local
    cd echo exit set unset source`,
  python: `and as assert async await break class continue def del elif else except finally for from
    global if import in is lambda match not or pass raise return try while with yield None True
    False self`,
  js: `async await break case catch class const continue default delete else export extends finally
    for from function if import in instanceof let new of return switch this throw try typeof var
    while yield null true false undefined`,
  rust: `as async await break const continue crate else enum fn for if impl in let loop match mod
    mut pub ref return self struct trait type use where while true false`,
  go: `break case chan const continue default defer else for func go if import interface map package
    range return select struct switch type var nil true false`,
  c: `auto break case char const continue default do double else enum extern float for goto if int
    long return short signed sizeof static struct switch typedef union unsigned void volatile while
    class namespace new delete public private template using virtual bool true false nullptr`,
  sql: `select from where and or not insert into values update set delete create table index join
    left right inner outer on group by order limit having as distinct union null is in like`,
  json: "true false null",
  toml: "true false",
};
const SAME = {
  bash: "sh", shell: "sh", zsh: "sh", console: "sh", py: "python", javascript: "js", ts: "js",
  typescript: "js", jsx: "js", tsx: "js", java: "c", cpp: "c", "c++": "c", cs: "c", rs: "rust",
  golang: "go", yaml: "toml", yml: "toml", ini: "toml", jsonc: "json",
}; // prettier-ignore
const HASH = new Set(["sh", "python", "toml"]);
const DASH = new Set(["sql"]);
const CHARS_MAX = 100_000; // longer code is shown without colours

export function highlight(text, language) {
  const name = SAME[language] ?? language;
  if (!Object.hasOwn(WORDS, name) || text.length > CHARS_MAX) return [{ kind: "plain", text }];
  const words = new Set(WORDS[name].split(/\s+/));
  const found = [];
  let plain = "";
  const add = (kind, part) => {
    if (plain) found.push({ kind: "plain", text: plain });
    plain = "";
    found.push({ kind, text: part });
  };
  for (let at = 0; at < text.length;) {
    const [kind, end] = piece(text, at, name);
    const part = text.slice(at, end);
    const isKeyword = kind === "word" && words.has(name === "sql" ? part.toLowerCase() : part);
    if (isKeyword) add("keyword", part);
    else if (kind === "plain" || kind === "word") plain += part;
    else add(kind, part);
    at = end;
  }
  if (plain) found.push({ kind: "plain", text: plain });
  return found;
}

function piece(text, at, name) {
  const char = text[at];
  if (HASH.has(name) && char === "#" && /\s|^$/.test(text[at - 1] ?? "")) return line(text, at);
  if (DASH.has(name) && text.startsWith("--", at)) return line(text, at);
  const hasSlashes = !HASH.has(name) && !DASH.has(name) && name !== "json";
  if (hasSlashes && text.startsWith("//", at)) return line(text, at);
  if (hasSlashes && text.startsWith("/*", at)) {
    const end = text.indexOf("*/", at + 2);
    return ["comment", end < 0 ? text.length : end + 2];
  }
  if (char === '"' || char === "'" || (char === "`" && name === "js")) return string(text, at);
  if (/[0-9]/.test(char)) return ["number", run(text, at, /[0-9a-fA-FxX._]/)];
  if (/[A-Za-z_]/.test(char)) return ["word", run(text, at, /[A-Za-z0-9_]/)];
  return ["plain", at + 1];
}

function line(text, at) {
  const end = text.indexOf("\n", at);
  return ["comment", end < 0 ? text.length : end];
}

function string(text, at) {
  const mark = text[at];
  let end = at + 1;
  while (end < text.length && text[end] !== mark && text[end] !== "\n") {
    end += text[end] === "\\" ? 2 : 1;
  }
  return ["string", Math.min(text.length, end + 1)];
}

function run(text, at, pattern) {
  let end = at + 1;
  while (end < text.length && pattern.test(text[end])) end += 1;
  return end;
}
