"""The style of the cards. JupyterLab's own variables where they exist, then VS Code's, then plain colours."""

import re

_SHEET = """
.cu-card {
  --cu-accent: #57606a;
  --cu-text: var(--jp-content-font-color1, var(--vscode-editor-foreground, #1f2328));
  --cu-soft: var(--jp-content-font-color2, var(--vscode-descriptionForeground, #57606a));
  --cu-line: var(--jp-border-color2, var(--vscode-panel-border, #d0d7de));
  --cu-mono: var(--jp-code-font-family, ui-monospace, Menlo, Consolas, monospace);
  max-width: 54em; margin: 4px 0 8px; padding: 10px 16px 12px; box-sizing: border-box;
  color: var(--cu-text); font-size: 14px; line-height: 1.5;
  border: 1px solid var(--cu-line); border-left: 4px solid var(--cu-accent); border-radius: 6px;
  background: color-mix(in srgb, var(--cu-accent) 5%, transparent);
}
.cu-card.cu-passed, .cu-card .cu-passed { --cu-accent: #1a7f37; }
.cu-card.cu-failed, .cu-card .cu-failed { --cu-accent: #bc4c00; }
.cu-card.cu-raised, .cu-card .cu-raised { --cu-accent: #c3283a; }
.cu-card.cu-timed-out, .cu-card .cu-timed-out { --cu-accent: #8250df; }
.cu-card.cu-not-attempted, .cu-card .cu-not-attempted { --cu-accent: #57606a; }
.cu-card.cu-hint, .cu-card.cu-progress { --cu-accent: #0969da; }
[data-jp-theme-light="false"] .cu-card.cu-passed, [data-jp-theme-light="false"] .cu-card .cu-passed,
.vscode-dark .cu-card.cu-passed, .vscode-dark .cu-card .cu-passed { --cu-accent: #4ac26b; }
[data-jp-theme-light="false"] .cu-card.cu-failed, [data-jp-theme-light="false"] .cu-card .cu-failed,
.vscode-dark .cu-card.cu-failed, .vscode-dark .cu-card .cu-failed { --cu-accent: #f0883e; }
[data-jp-theme-light="false"] .cu-card.cu-raised, [data-jp-theme-light="false"] .cu-card .cu-raised,
.vscode-dark .cu-card.cu-raised, .vscode-dark .cu-card .cu-raised { --cu-accent: #ff7b72; }
[data-jp-theme-light="false"] .cu-card.cu-timed-out, [data-jp-theme-light="false"] .cu-card .cu-timed-out,
.vscode-dark .cu-card.cu-timed-out, .vscode-dark .cu-card .cu-timed-out { --cu-accent: #bc8cff; }
[data-jp-theme-light="false"] .cu-card.cu-not-attempted, .vscode-dark .cu-card.cu-not-attempted,
[data-jp-theme-light="false"] .cu-card .cu-not-attempted, .vscode-dark .cu-card .cu-not-attempted,
[data-jp-theme-light="false"] .cu-card, .vscode-dark .cu-card { --cu-accent: #9198a1; }
[data-jp-theme-light="false"] .cu-card.cu-hint, [data-jp-theme-light="false"] .cu-card.cu-progress,
.vscode-dark .cu-card.cu-hint, .vscode-dark .cu-card.cu-progress { --cu-accent: #58a6ff; }
.cu-card p { margin: 8px 0 0; }
.cu-card.cu-card code, .cu-card.cu-card pre {
  padding: 0; background: none; font-family: var(--cu-mono); font-size: 0.92em; color: var(--cu-text);
}
.cu-card.cu-card p code, .cu-card.cu-card caption code {
  padding: 0 4px; border-radius: 4px; background: color-mix(in srgb, var(--cu-text) 8%, transparent);
}
.cu-head { display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: baseline; }
.cu-badge {
  color: var(--cu-accent); font-weight: 600; white-space: nowrap;
}
.cu-head .cu-badge {
  padding: 0 10px; border-radius: 1em; background: color-mix(in srgb, var(--cu-accent) 14%, transparent);
}
.cu-card.cu-card .cu-title code { color: var(--cu-soft); margin-right: 4px; }
.cu-points { margin-left: auto; color: var(--cu-soft); white-space: nowrap; }
.cu-mistake strong { color: var(--cu-accent); }
.cu-card.cu-card pre.cu-where {
  margin: 8px 0 0; padding: 6px 10px; overflow-x: auto; border-radius: 4px;
  background: color-mix(in srgb, var(--cu-text) 6%, transparent);
}
.cu-card p.cu-try { padding-top: 8px; border-top: 1px solid var(--cu-line); }
.cu-card p.cu-note, .cu-card p.cu-after, .cu-card p.cu-about { color: var(--cu-soft); }
.cu-wide { overflow-x: auto; }
.cu-card.cu-card table { margin: 10px 0 2px; border-collapse: collapse; font-size: 13px; table-layout: auto; }
.cu-card caption { text-align: left; color: var(--cu-soft); padding-bottom: 4px; caption-side: top; }
.cu-card.cu-card table tr, .cu-card.cu-card table tr:hover, .cu-card.cu-card table tr:nth-child(even) {
  background: transparent;
}
.cu-card.cu-card table th, .cu-card.cu-card table td {
  padding: 3px 18px 3px 0; border: 0; text-align: left; vertical-align: top;
  max-width: none; color: var(--cu-text); font-size: 13px; line-height: 1.5; white-space: normal;
}
.cu-card.cu-card table th { font-weight: 400; color: var(--cu-soft); }
.cu-card.cu-card .cu-beside tr + tr > * { border-top: 1px solid var(--cu-line); }
.cu-card.cu-card .cu-beside td code { white-space: pre; }
.cu-card.cu-card .cu-beside td pre { border: 0; margin: 0; white-space: pre; overflow-x: auto; }
.cu-card.cu-card table .cu-mark { white-space: nowrap; color: var(--cu-soft); }
.cu-card.cu-card table .cu-differs .cu-mark { color: var(--cu-accent); font-weight: 600; }
.cu-card details { margin-top: 8px; }
.cu-card summary { cursor: pointer; color: var(--cu-accent); }
.cu-card.cu-card pre.cu-code {
  margin: 10px 0 0; padding: 10px 12px; overflow-x: auto; border-radius: 4px; line-height: 1.45;
  font-size: 13px;
  background: var(--jp-cell-editor-background, color-mix(in srgb, var(--cu-text) 5%, transparent));
}
.cu-code .cu-k { color: var(--jp-mirror-editor-keyword-color, #0550ae); font-weight: 600; }
.cu-code .cu-s { color: var(--jp-mirror-editor-string-color, #0a3069); }
.cu-code .cu-n { color: var(--jp-mirror-editor-number-color, #116329); }
.cu-code .cu-c { color: var(--jp-mirror-editor-comment-color, #6e7781); font-style: italic; }
.cu-code .cu-d { color: var(--jp-mirror-editor-def-color, #6639ba); }
.cu-bar { height: 8px; margin: 10px 0 4px; border-radius: 4px; overflow: hidden; background: var(--cu-line); }
.cu-bar div { height: 100%; background: #1a7f37; }
.cu-card.cu-card table.cu-list { width: 100%; }
.cu-card.cu-card table.cu-list tr > :last-child {
  text-align: right; padding-right: 0; white-space: nowrap; color: var(--cu-soft);
}
.cu-card.cu-card table.cu-list .cu-lesson > * { padding-top: 10px; border-bottom: 1px solid var(--cu-line); }
.cu-card.cu-card table.cu-list .cu-lesson th { font-weight: 600; color: var(--cu-text); }
.cu-card.cu-card .cu-list small { color: var(--cu-soft); }
"""

STYLE = re.sub(r"\s*([{};,])\s*", r"\1", " ".join(_SHEET.split()))


def accents() -> dict[str, list[str]]:
    """Kind of card -> its colour on a light ground and on a dark one, as the sheet has them."""
    found: dict[str, list[str]] = {}
    for selectors, colour in re.findall(r"([^{}]+)\{--cu-accent: (#\w+);\}", STYLE):
        for kind in sorted(set(re.findall(r"\.cu-card\.cu-([\w-]+)", selectors))):
            found.setdefault(kind, []).append(colour)
    return found
