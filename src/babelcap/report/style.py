"""How the page looks: one column, readable on a phone, light or dark as the reader's system is."""

CSS = """
:root { color-scheme: light dark; --text: #1c1c1c; --soft: #5d5d5d; --page: #ffffff; --card: #f6f6f4; --line: #dcdcd8;
  --good: #0a6b3d; --some: #8a5a00; --bad: #a32020; --none: #5d5d5d; --link: #00568a; }
@media (prefers-color-scheme: dark) { :root { --text: #e9e9e6; --soft: #a9a9a4; --page: #161617; --card: #212123;
  --line: #3a3a3d; --good: #62cf95; --some: #e2b455; --bad: #f08a80; --none: #a9a9a4; --link: #7cc0ee; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.5 system-ui, "Segoe UI", Roboto,
  "Noto Sans", "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.25rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .5rem 0 .8rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .6rem; border-bottom: 1px solid var(--line); padding-bottom: .25rem; }
p { margin: .5rem 0; } a { color: var(--link); }
.soft { color: var(--soft); font-size: .88rem; }
.lead { font-size: 1.06rem; }
.claim { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .7rem .9rem;
  margin: .7rem 0; }
.claim h3 { margin: 0; font-size: 1.02rem; display: flex; gap: .8rem; justify-content: space-between;
  align-items: baseline; }
.verdict { font-weight: 700; white-space: nowrap; }
.holds { color: var(--good); } .partly { color: var(--some); } .does-not { color: var(--bad); }
.not-measured { color: var(--none); }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { text-align: left; padding: .28rem .55rem .28rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
.claim table { margin-top: .45rem; } .claim tr:last-child td { border-bottom: 0; }
.claim td:first-child { width: 1.6rem; font-weight: 700; } .claim td:nth-child(2) { width: 48%; }
.number { white-space: nowrap; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
.scroll table { width: auto; min-width: 100%; } .scroll th, .scroll td { padding-right: 1rem; }
.scroll th, .scroll td { white-space: nowrap; } .scroll td.note { white-space: normal; min-width: 18rem; }
figure { margin: 1.2rem 0; } figcaption { font-size: .93rem; margin-top: .4rem; }
.plot { background: #ffffff; border: 1px solid var(--line); border-radius: 8px; padding: .5rem; overflow-x: auto; }
.plot img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
.cards { display: grid; gap: 1rem; }
.card { border: 1px solid var(--line); border-radius: 8px; padding: .8rem; display: grid; grid-template-columns:
  10rem 1fr; gap: 1rem; }
.card > div { min-width: 0; }
.card img { width: 100%; border-radius: 4px; display: block; image-rendering: pixelated; }
.caption { overflow-wrap: anywhere; } .prefix { color: var(--soft); }
.score { font-size: .8rem; white-space: nowrap; }
details { margin: .6rem 0; } summary { cursor: pointer; color: var(--link); }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .6rem .8rem;
  overflow-x: auto; font-size: .83rem; }
nav { font-size: .92rem; } nav a { margin-right: 1rem; display: inline-block; }
@media (max-width: 640px) {
  .plot.wide + figcaption::before { content: "(Swipe the figure sideways.) "; color: var(--soft); }
  .plot.wide img { max-width: none; width: 42rem; }
  .card { grid-template-columns: 1fr; } .card img { max-width: 12rem; }
  .card table, .card tbody, .card tr, .card td { display: block; } .card thead { display: none; }
  .card tr { border-bottom: 1px solid var(--line); padding: .35rem 0; } .card td { border: 0; padding: .1rem 0; }
  .card td[data-label]::before { content: attr(data-label) ": "; color: var(--soft); font-size: .8rem; }
  .claim table, .claim tbody { display: block; }
  .claim tr { display: grid; grid-template-columns: 1.5rem 1fr; padding: .3rem 0;
    border-bottom: 1px solid var(--line); }
  .claim tr:last-child { border-bottom: 0; } .claim td { border: 0; padding: 0; width: auto; }
  .claim td:nth-child(2) { width: auto; }
  .claim td:first-child { grid-row: 1 / span 3; } .claim thead { display: none; }
}
"""
