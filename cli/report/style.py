"""How the page looks: light and dark by the reader's settings, light on paper, and readable on a telephone."""

from __future__ import annotations

CSS = """
:root { color-scheme: light dark; --ink: #1d2733; --dim: #5d6b7a; --line: #dde3ea; --fill: #2f6fb3; --bad: #b3372f;
  --ground: #ffffff; --card: #f5f7fa; --plain: #9db3c9; --odd: #c3cfdb;
  --third: #4a9a57; --mild: #d9822b; --grave: #c62f26; --on: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf1; --dim: #9aa7b5; --line: #303a46; --fill: #6aa7e8;
  --bad: #ef7d74; --ground: #14191f; --card: #1c232c; --plain: #4f6478; --odd: #38485a;
  --third: #6fbf7c; --mild: #f0a04b; --grave: #f0645a; --on: #10151a; } }
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--ground); overflow-wrap: break-word; }
h1 { font-size: 1.5rem; margin: 2.5rem 0 .5rem; } h2 { font-size: 1rem; margin: 1.8rem 0 .4rem; }
h3 { font-size: .95rem; margin: 1rem 0 .2rem; }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; }
.tile { background: var(--card); border-radius: .4rem; padding: .5rem .9rem; min-width: 7rem; flex: 0 1 auto; }
.tile b { display: block; font-size: 1.15rem; font-variant-numeric: tabular-nums; } .tile span { color: var(--dim); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--dim); vertical-align: bottom; }
td, th { padding: .15rem .8rem .15rem 0; vertical-align: top; } td:first-child { white-space: nowrap; }
td.wide { min-width: 14rem; }
td.n, th.n { text-align: right; white-space: nowrap; } tr + tr td { border-top: 1px solid var(--line); }
td.bar { width: 40%; min-width: 4rem; } td.bar i { display: block; height: .7rem; margin-top: .4rem; border-radius: 2px;
  background: var(--fill); } td.bar i.bad { background: var(--bad); margin-top: 0; }
svg.chart { width: 100%; height: 9rem; display: block; }
svg.chart rect { fill: var(--fill); } svg.chart line { stroke: var(--line); } p { color: var(--dim); margin: .3rem 0; }
.scroll { overflow-x: auto; }
ul.list { list-style: none; margin: 0; padding: 0; } ul.list li { padding: .3rem 0 .3rem .7rem; border-left: 4px solid
  var(--line); margin: .3rem 0; } ul.list li.grave { border-color: var(--grave); } ul.list li.mild { border-color:
  var(--mild); } ul.list b { margin-right: .5rem; }
.good { color: var(--third); } .bad { color: var(--grave); font-weight: 600; }
svg.map { width: 100%; display: block; font: 11px system-ui, sans-serif; } svg.map text { fill: var(--dim); }
svg.map text.on { fill: var(--on); font-weight: 700; }
.nothing { fill: var(--card); } .unknown { fill: var(--ground); stroke: var(--dim); } .plain { fill: var(--plain); }
.odd { fill: var(--odd); }
.mild { fill: var(--mild); } .grave { fill: var(--grave); }
ul.legend { list-style: none; padding: 0; margin: .4rem 0; color: var(--dim); font-size: .9em; }
ul.legend svg { width: .8rem; height: .8rem; vertical-align: -1px; margin: 0 .2rem 0 .5rem; }
ul.legend b { color: var(--ink); font-weight: 600; }
@media print { :root { color-scheme: light; --ink: #000000; --dim: #444444; --line: #bbbbbb; --ground: #ffffff;
  --card: #f2f2f2; --plain: #9db3c9; --odd: #c3cfdb; --third: #4a9a57;
  --mild: #d9822b; --grave: #c62f26; --fill: #2f6fb3; --bad: #b3372f; --on: #ffffff; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body { margin: 0; max-width: none; font-size: 11px; }
  .scroll { overflow: visible; } .tile, li, tr, svg { break-inside: avoid; } h1, h2 { break-after: avoid; } }
"""
