#!/usr/bin/env bash
# Asks the hosts themselves about a clone of this tree: no account, and a home of its own. Not part of the
# suite, because the three weigh 1 GB. HOSTS=DIR: where their packages are, or are to be put.
# Needs node 22, npm, and `gpu-tenant` in .venv.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
hosts=${HOSTS:-$work/hosts}
mkdir -p "$hosts" "$work/home/.gemini" "$work/empty" "$work/gpu-tenant"
if [[ ! -x $hosts/node_modules/.bin/claude ]]; then
  (cd "$hosts" && npm install --silent --no-audit --no-fund --prefix . \
    node@22 @anthropic-ai/claude-code@2.1.330 @openai/codex@0.169.0 @google/gemini-cli@0.61.0)
  (cd "$hosts/node_modules/@anthropic-ai/claude-code" && ../../node/bin/node install.cjs)
fi
git -C "$root" ls-files -co --exclude-standard -z | (cd "$root" && xargs -0 cp --parents -t "$work/gpu-tenant")
export HOME=$work/home PATH=$root/.venv/bin:$hosts/node_modules/node/bin:$hosts/node_modules/.bin:$PATH
export DISABLE_AUTOUPDATER=1 CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
echo '{"security":{"folderTrust":{"enabled":false}}}' >"$HOME/.gemini/settings.json"
clone=$work/gpu-tenant
cd "$work/empty"
failed=0
check() {  # check WHAT PATTERN COMMAND...: its words are shown where they lack the pattern
  local what=$1 pattern=$2 said
  shift 2
  said=$(timeout 120 "$@" </dev/null 2>&1) || true
  if grep -Eq "$pattern" <<<"$said"; then echo "ok   $what"; else echo "FAIL $what"; echo "$said"; failed=1; fi
}
check "Claude Code takes the manifests" 'Validation passed' claude plugin validate "$clone"
check "Claude Code takes the skill" 'Validation passed' claude plugin validate --strict "$clone/skills"
check "Claude Code adds the marketplace" 'Successfully added' claude plugin marketplace add "$clone"
check "Claude Code installs the plugin" 'Successfully installed' claude plugin install gpu-tenant@gpu-tenant
check "Claude Code starts its server" 'plugin:gpu-tenant:gpu: .*Connected' claude mcp list
check "Codex adds the marketplace" 'Added marketplace' codex plugin marketplace add "$clone"
check "Codex installs the plugin" 'Installed plugin root' codex plugin add gpu-tenant@gpu-tenant
check "Gemini CLI takes the manifest" 'successfully validated' gemini extensions validate "$clone"
check "Gemini CLI installs the extension" 'installed successfully' gemini extensions install --consent "$clone"
check "Gemini CLI reads the skill" 'gpu-tenant \[Enabled\]' gemini skills list
check "Gemini CLI starts its server" 'gpu .*Connected' gemini mcp list
HOME=$work/other
mkdir -p "$HOME"
for host in claude codex gemini; do gpu-tenant install "$host" --yes >/dev/null 2>&1; done
mkdir -p "$HOME/.gemini" && echo "{\"$work/empty\": \"TRUST_FOLDER\"}" >"$HOME/.gemini/trustedFolders.json"
check "Claude Code starts what install wrote" '^gpu: .*Connected' claude mcp list
check "Codex reads what install wrote" 'gpu .*enabled' codex mcp list
check "Gemini CLI starts what install wrote" 'gpu: .*Connected' gemini mcp list
exit $failed
