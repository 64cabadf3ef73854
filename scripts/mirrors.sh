#!/bin/sh
# Where this box's pip, conda and Hugging Face tools look and keep things: show it, set it, put it back.
#
#   mirrors.sh show             what is in force, and what says so
#   mirrors.sh set pip URL      pip's index, in your own pip configuration
#   mirrors.sh set hf URL       HF_ENDPOINT, in ~/.gpu-tenant-env
#   mirrors.sh set cache DIR    HF_HOME, XDG_CACHE_HOME, PIP_CACHE_DIR and TORCH_HOME below DIR, in ~/.gpu-tenant-env
#   mirrors.sh undo             every file byte for byte as it was before the first `set`
#   mirrors.sh proxy-off        how to do without the proxy that is set here; it changes nothing
#
# After a `set`, in each shell and in each job: . ~/.gpu-tenant-env
#
# POSIX sh, no root; it writes below your home directory alone. No address is built in: `show` tells those
# that the image brings along. One JSON object on the last line of stdout; exit status 0, 1 (not done, with
# a code), 2 (a wrong request).

# Everything is in functions that the last line calls, so that a script which arrives over ssh's stdin is read
# whole before it runs, and one that was cut on its way does nothing.

# shellcheck disable=SC2015  # `a && b || refuse`: to refuse after either has failed is what is meant

NEWLINE='
'
TAB=$(printf '\t')
CR=$(printf '\r')

usage() {
    cat <<'HELP'
Where this box's pip, conda and Hugging Face tools look and keep things: show it, set it, put it back.

  mirrors.sh show             what is in force, and what says so
  mirrors.sh set pip URL      pip's index, in your own pip configuration
  mirrors.sh set hf URL       HF_ENDPOINT, in ~/.gpu-tenant-env
  mirrors.sh set cache DIR    HF_HOME, XDG_CACHE_HOME, PIP_CACHE_DIR and TORCH_HOME below DIR, in ~/.gpu-tenant-env
  mirrors.sh undo             every file byte for byte as it was before the first `set`
  mirrors.sh proxy-off        how to do without the proxy that is set here; it changes nothing

After a `set`, in each shell and in each job: . ~/.gpu-tenant-env
The last line of stdout is one JSON object; exit status 0, 1 (not done, with a code), 2 (a wrong request).
HELP
}

# The text as a JSON string. What does not print is shown as "?".
json() {
    printf '"'
    printf '%s' "$1" | LC_ALL=C tr '\001-\037\177' '?' | LC_ALL=C sed 's/[\\"]/\\&/g'
    printf '"'
}

refuse() { # status code message
    printf '%s\n' "mirrors.sh: $3" >&2
    printf '{"ok": false, "code": "%s", "message": %s}\n' "$2" "$(json "$3")"
    exit "$1"
}

# The address without the user and password, or conda's token, that it may hold.
plain() { printf '%s' "$1" | sed 's#://[^/@]*@#://***@#g; s#/t/[A-Za-z0-9_-]*/#/t/***/#g'; }

no_line_break() { # what value
    case $2 in *"$NEWLINE"*) refuse 2 BAD_REQUEST "$1 holds a line break, which no shell file can carry safely" ;; esac
}

# --- places -------------------------------------------------------------------------------------

places() {
    [ -n "${HOME-}" ] || refuse 2 BAD_REQUEST "HOME is not set"
    no_line_break HOME "$HOME"
    [ -d "$HOME" ] || refuse 1 NOT_WRITABLE "$HOME is no directory"
    case ${XDG_CONFIG_HOME-} in
        /*) CONFIG=$XDG_CONFIG_HOME ;;
        *) CONFIG=$HOME/.config ;; # unset, empty or relative: all mean the usual place
    esac
    no_line_break XDG_CONFIG_HOME "$CONFIG"
    PIP_FILE=$CONFIG/pip/pip.conf
    ENV_FILE=$HOME/.gpu-tenant-env
    KEPT=$HOME/.gpu-tenant-mirrors
}

# --- writing, and taking it back ----------------------------------------------------------------

# $1 is a file's name among the kept ones, $2 the file: how it was before the first change is on the disk.
keep() {
    [ -e "$KEPT/$1.path" ] && return 0
    [ -d "$KEPT" ] || FRESH=yes
    mkdir -p "$KEPT" || refuse 1 NOT_WRITABLE "$KEPT cannot be made: nothing was changed"
    rm -f "$KEPT/$1.before" "$KEPT/$1.made"
    dir=${2%/*}
    : >"$KEPT/$1.made.new" || refuse 1 NOT_WRITABLE "$KEPT cannot be written: nothing was changed"
    while [ ! -d "$dir" ]; do # undo removes the directories that this makes
        printf '%s\n' "$dir" >>"$KEPT/$1.made.new"
        dir=${dir%/*}
        [ -n "$dir" ] || break
    done
    mv "$KEPT/$1.made.new" "$KEPT/$1.made"
    if [ -e "$2" ]; then
        # The very file, where that can be had: undo then also gives back its times, owner and attributes.
        ln "$2" "$KEPT/$1.before" 2>/dev/null || cp -p "$2" "$KEPT/$1.before" ||
            refuse 1 NOT_WRITABLE "$2 could not be kept: nothing was changed"
    fi
    # Written last: a keep that was cut short is done again, for nothing was changed yet.
    printf '%s\n' "$2" >"$KEPT/$1.path.new" && mv "$KEPT/$1.path.new" "$KEPT/$1.path" ||
        refuse 1 NOT_WRITABLE "$KEPT cannot be written: nothing was changed"
}

# REAL is the file that a link leads to: a link is not to be replaced by a file.
real() {
    REAL=$1
    if [ -L "$1" ]; then
        REAL=$(readlink -f "$1") && [ -n "$REAL" ] || refuse 1 NOT_WRITABLE "$1 is a link that leads nowhere"
    fi
}

# $1 name, $2 file, $3 its new content: the file is there, whole, under its own name, with the mode that it had.
put() {
    mkdir -p "${2%/*}" || { taken_back; refuse 1 NOT_WRITABLE "${2%/*} cannot be made"; }
    new=$2.gpu-tenant-new
    rm -f "$new"
    if [ -e "$2" ]; then cp -p "$2" "$new"; else (umask 077 && : >"$new"); fi &&
        printf '%s' "$3" >"$new" && cp "$new" "$KEPT/$1.ours" && mv "$new" "$2" || {
        rm -f "$new"
        taken_back
        refuse 1 NOT_WRITABLE "$2 cannot be written: it was left as it was"
    }
}

# What this call alone has kept is gone again, because it could change nothing.
taken_back() { [ -z "$FRESH" ] || (undo) >/dev/null; }

undo() {
    undone='' edited=''
    [ -d "$KEPT" ] || { printf '{"ok": true, "verb": "undo", "restored": [], "already": true}\n'; return; }
    for name in pip env; do
        [ -e "$KEPT/$name.path" ] || continue
        file=$(cat "$KEPT/$name.path")
        if [ -e "$file" ] && [ -e "$KEPT/$name.ours" ] && ! cmp -s "$file" "$KEPT/$name.ours"; then
            # Somebody wrote to it since: that is not ours to throw away.
            if ! { [ -e "$KEPT/$name.before" ] && cmp -s "$file" "$KEPT/$name.before"; }; then
                aside=$file.edited
                while [ -e "$aside" ]; do aside=$aside+; done
                cp -p "$file" "$aside" || refuse 1 NOT_WRITABLE "$file was edited since and cannot be kept"
                edited="$edited${edited:+, }$(json "$aside")"
            fi
        fi
        if [ -e "$KEPT/$name.before" ]; then
            [ "$KEPT/$name.before" -ef "$file" ] 2>/dev/null ||
                { mkdir -p "${file%/*}" && rm -f "$file.gpu-tenant-new" &&
                    { ln "$KEPT/$name.before" "$file.gpu-tenant-new" 2>/dev/null ||
                        cp -p "$KEPT/$name.before" "$file.gpu-tenant-new"; } &&
                    mv "$file.gpu-tenant-new" "$file" && rm -f "$file.gpu-tenant-new"; } || refuse 1 NOT_WRITABLE "$file could not be put back"
        elif [ -e "$file" ]; then # busybox's rm -f fails below what is no directory
            rm -f "$file" || refuse 1 NOT_WRITABLE "$file could not be removed"
        fi
        while IFS= read -r dir || [ -n "$dir" ]; do
            rmdir "$dir" 2>/dev/null || break # it holds what is not ours
        done <"$KEPT/$name.made"
        undone="$undone${undone:+, }$(json "$file")"
    done
    if [ -e "$KEPT/cache.made" ]; then
        while IFS= read -r dir; do rmdir "$dir" 2>/dev/null; done <"$KEPT/cache.made"
    fi
    rm -rf "$KEPT" || refuse 1 NOT_WRITABLE "$KEPT could not be removed"
    printf '{"ok": true, "verb": "undo", "restored": [%s], "edited_since_kept_as": [%s]}\n' "$undone" "$edited"
}

# --- set ----------------------------------------------------------------------------------------

address() { # value: ADDRESS is the address, or the request was wrong
    ADDRESS=${1%"$CR"}
    case $ADDRESS in
        '') refuse 2 BAD_REQUEST "the address is empty" ;;
        *@*) refuse 2 BAD_REQUEST "the address holds a user or a password: those do not belong in a command" ;;
        *[!A-Za-z0-9:/._~%+-]*) refuse 2 BAD_REQUEST "the address holds a character that it should not" ;;
        https://[A-Za-z0-9]*) ;;
        http://[A-Za-z0-9]*) WARN="pip and others refuse a plain http address unless its host is trusted; prefer https" ;;
        *) refuse 2 BAD_REQUEST "an address begins with https:// or http://" ;;
    esac
}

# pip's index, with every other line of the file as it was.
set_pip() {
    address "$1"
    real "$PIP_FILE"
    file=$REAL
    keep pip "$file"
    content=
    [ -e "$file" ] && content=$(cat "$file" && printf x) # the x keeps the last line breaks
    [ -e "$file" ] && content=${content%x}
    content=$(printf '%s' "$content" | URL=$ADDRESS LC_ALL=C awk '
        function ours() { printf "index-url = %s%s\n", ENVIRON["URL"], cr; done = 1 }
        BEGIN { cr = "" }
        NR == 1 && /\r$/ { cr = "\r" }
        { line = $0; sub(/\r$/, "", line) }
        # A line that is set in goes on with the value above it.
        dropping && line ~ /^[ \t]+[^ \t]/ { next }
        { dropping = 0 }
        line ~ /^\[/ {
            if (inside && !done) ours()
            inside = (line ~ /^\[global\][ \t]*([#;].*)?$/)
            print; if (inside && !done) ours(); next
        }
        inside && line ~ /^[Ii][Nn][Dd][Ee][Xx][-_][Uu][Rr][Ll][ \t]*[=:]/ { dropping = 1; next }
        { print }
        END { if (!done) { printf "[global]%s\n", cr; ours() } }' && printf x)
    put pip "$file" "${content%x}"
    over=$(pip_overrides)
    reply pip "$file" "$over"
}

# What is stronger here than the user file of pip.
pip_overrides() {
    [ -z "${PIP_INDEX_URL-}" ] || printf 'PIP_INDEX_URL is set; '
    if [ -n "${PIP_CONFIG_FILE-}" ] && [ -e "${PIP_CONFIG_FILE-}" ]; then
        printf 'PIP_CONFIG_FILE names another file; '
    fi
    if [ -f "$PIP_FILE" ] && ini "$PIP_FILE" | grep -q '^install[.]index-url'; then
        printf 'the same file has an index-url for [install]; '
    fi
    if [ -n "${VIRTUAL_ENV-}" ] && grep -qi '^index[-_]url' "$VIRTUAL_ENV/pip.conf" 2>/dev/null; then
        printf 'the virtual environment has a pip.conf of its own; '
    fi
}

quoted() { # the value in single quotes, for a shell
    printf "'"
    printf '%s' "$1" | sed "s/'/'\\\\''/g"
    printf "'"
}

# $1: NAME=value lines (values quoted): each is in the env file once, and every other line as it was.
put_env() {
    real "$ENV_FILE"
    file=$REAL
    keep env "$file"
    content=
    [ -e "$file" ] && content=$(cat "$file" && printf x)
    [ -e "$file" ] && content=${content%x}
    content=$(printf '%s' "$content" | LINES_OF_OURS=$1 LC_ALL=C awk '
        BEGIN {
            count = split(ENVIRON["LINES_OF_OURS"], ours, "\n")
            for (n = 1; n <= count; n++) { name = ours[n]; sub(/=.*/, "", name); mine["export " name] = 1 }
        }
        { name = $0; sub(/=.*/, "", name) }
        index($0, "=") && (name in mine) { next }
        { print }
        END { for (n = 1; n <= count; n++) if (ours[n] != "") print "export " ours[n] }' && printf x)
    put env "$file" "${content%x}"
}

set_hf() {
    address "${1%/}"
    put_env "HF_ENDPOINT=$(quoted "$ADDRESS")"
    reply hf "$ENV_FILE" ""
}

set_cache() {
    caches=${1%"$CR"}
    [ -n "$caches" ] || refuse 2 BAD_REQUEST "the directory is empty"
    no_line_break DIR "$caches"
    case $caches in /*) ;; *) caches=$PWD/$caches ;; esac
    no_line_break DIR "$caches"
    while [ "$caches" != "${caches%/}" ] && [ "$caches" != / ]; do caches=${caches%/}; done
    [ "$caches" != / ] || refuse 2 BAD_REQUEST "the root of the system is no place for caches"
    missing=$caches made=
    while [ ! -d "$missing" ] && [ -n "$missing" ]; do # undo removes those that then hold nothing
        made=$made$missing$NEWLINE
        missing=${missing%/*}
    done
    mkdir -p "$caches" && probe=$(mktemp "$caches/.gpu-tenant-probe.XXXXXX") && rm -f "$probe" ||
        refuse 1 NOT_WRITABLE "$caches cannot be written"
    # Hugging Face keeps the key beside its cache: it stays in the home directory, off a disk that others may read.
    token=${HF_TOKEN_PATH:-${HF_HOME:-$HOME/.cache/huggingface}/token}
    no_line_break HF_TOKEN_PATH "$token"
    put_env "XDG_CACHE_HOME=$(quoted "$caches")
PIP_CACHE_DIR=$(quoted "$caches/pip")
HF_HOME=$(quoted "$caches/huggingface")
HF_TOKEN_PATH=$(quoted "$token")
TORCH_HOME=$(quoted "$caches/torch")"
    printf '%s' "$made" >>"$KEPT/cache.made"
    if [ "$(mount_of "$caches")" = "$(mount_of /)" ]; then
        WARN="$caches lies on the system disk itself"
    fi
    reply cache "$ENV_FILE" ""
}

mount_of() { df -P "$1" 2>/dev/null | awk 'NR == 2 { print $1, $NF }'; }

reply() { # what file overridden
    printf '. %s\n' "$(quoted "$ENV_FILE")"
    printf '{"ok": true, "verb": "set", "what": "%s", "file": %s, "source": %s, "overridden_by": %s, "warning": %s}\n' \
        "$1" "$(json "$2")" "$(json ". $(quoted "$ENV_FILE")")" "$(json "$3")" "$(json "$WARN")"
}

# --- show ---------------------------------------------------------------------------------------

# One setting: tool, name, value, where from; of two of one name the first is in force.
say() {
    in_force=true
    case $SEEN in *"|$1 $2|"*) in_force=false ;; esac
    SEEN="$SEEN|$1 $2|"
    value=$(plain "$3")
    SHOWN="$SHOWN${SHOWN:+, }{\"tool\": \"$1\", \"name\": $(json "$2"), \"value\": $(json "$value"), \"from\": $(json "$4"), \"in_force\": $in_force}"
}

say_env() { # tool name-of-the-variable name-of-the-setting
    eval "state=\${$2+set} value=\${$2-}"
    # shellcheck disable=SC2154  # by the eval above
    if [ -n "$value" ]; then
        say "$1" "$3" "$value" "environment: $2"
    elif [ "$state" = set ]; then
        say "$1" "$2" "" "environment: set, and empty"
    fi
}

# The settings of a pip configuration, one "name value" a line; values go on over lines that are set in.
ini() {
    LC_ALL=C awk '
        { sub(/\r$/, "") }
        /^[ \t]*[#;]/ { next }
        /^[ \t]+[^ \t]/ && name != "" { sub(/^[ \t]+/, ""); printf " %s", $0; next }
        { if (name != "") printf "\n"; name = "" }
        /^\[/ { section = $0; sub(/^\[/, "", section); sub(/\].*/, "", section); next }
        /[=:]/ {
            name = $0; sub(/[ \t]*[=:].*/, "", name); value = $0; sub(/^[^=:]*[=:][ \t]*/, "", value)
            name = tolower(name); gsub(/_/, "-", name)
            if (section != "global") name = section "." name
            printf "%s\t%s", name, value
        }
        END { if (name != "") printf "\n" }' "$1"
}

say_pip_file() {
    [ -f "$1" ] && [ -r "$1" ] || return 0
    settings=$(ini "$1")
    while IFS="$TAB" read -r name value || [ -n "$name" ]; do
        case $name in
            index-url | extra-index-url | trusted-host | proxy | cache-dir | find-links | install.*url | download.*url)
                say pip "$name" "$value" "$1" ;;
        esac
    done <<SETTINGS
$settings
SETTINGS
}

show() {
    SHOWN='' SEEN=''
    # By what is stronger in pip: environment, the file that it names, virtual environment, user, everybody.
    say_env pip PIP_INDEX_URL index-url
    say_env pip PIP_EXTRA_INDEX_URL extra-index-url
    say_env pip PIP_TRUSTED_HOST trusted-host
    say_env pip PIP_PROXY proxy
    say_env pip PIP_CACHE_DIR cache-dir
    say_pip_file "${PIP_CONFIG_FILE-}"
    [ -z "${VIRTUAL_ENV-}" ] || say_pip_file "$VIRTUAL_ENV/pip.conf"
    if [ -z "${PIP_CONFIG_FILE-}" ] || [ ! -e "${PIP_CONFIG_FILE-}" ]; then
        say_pip_file "$PIP_FILE"
        say_pip_file "$HOME/.pip/pip.conf"
    fi
    say_pip_file /etc/pip.conf
    say_pip_file /etc/xdg/pip/pip.conf
    say_env uv UV_DEFAULT_INDEX default-index
    say_env uv UV_INDEX_URL index-url
    for file in "${CONDARC-}" "${CONDA_PREFIX:+$CONDA_PREFIX/.condarc}" "$HOME/.condarc" "$HOME/.conda/.condarc" \
        /opt/conda/.condarc /root/miniconda3/.condarc /etc/conda/.condarc; do
        if [ -n "$file" ] && [ -f "$file" ] && [ -r "$file" ]; then
            say conda "$file" "$(sed 's/#.*//' "$file" | grep -E 'channel|defaults|https?://|proxy' | tr -s ' \r\n' ' ')" "$file"
        fi
    done
    for variable in HF_ENDPOINT HF_HOME HF_HUB_CACHE HF_HUB_OFFLINE HF_HUB_DISABLE_XET; do
        say_env hf "$variable" "$variable"
    done
    for variable in XDG_CACHE_HOME TORCH_HOME; do say_env cache "$variable" "$variable"; done
    if [ -f "$ENV_FILE" ]; then
        # shellcheck disable=SC2094  # its name is only shown
        while IFS= read -r line || [ -n "$line" ]; do
            case $line in
                'export '*=*)
                    name=${line#export }
                    say env-file "${name%%=*}" "${name#*=}" "$ENV_FILE" ;;
            esac
        done <"$ENV_FILE"
    fi
    undoable=false
    [ ! -d "$KEPT" ] || undoable=true
    printf '{"ok": true, "verb": "show", "settings": [%s], "undo_possible": %s, "env_file": %s}\n' \
        "$SHOWN" "$undoable" "$(json "$ENV_FILE")"
}

# --- proxy-off ----------------------------------------------------------------------------------

proxy_off() {
    found='' unset_line='unset'
    for variable in http_proxy https_proxy all_proxy ftp_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY FTP_PROXY; do
        eval "value=\${$variable-}"
        [ -n "$value" ] || continue
        found="$found${found:+, }{\"name\": \"$variable\", \"value\": $(json "$(plain "$value")")}"
        unset_line="$unset_line $variable"
    done
    files=''
    for file in "$PIP_FILE" "$HOME/.pip/pip.conf" /etc/pip.conf "$HOME/.gitconfig" "$HOME/.condarc" "$HOME/.wgetrc" \
        "$HOME/.curlrc" "$HOME/.npmrc" /etc/environment /etc/network_turbo; do
        if [ -f "$file" ] && grep -qi 'proxy' "$file" 2>/dev/null; then
            files="$files${files:+, }$(json "$file")"
        fi
    done
    [ "$unset_line" != unset ] || unset_line=''
    [ -z "$unset_line" ] || printf '%s\n' "$unset_line"
    printf '{"ok": true, "verb": "proxy-off", "variables": [%s], "files_that_name_one": [%s], "run": %s, "for_one_pip": "pip --proxy \\"\\" install ...", "for_some_hosts": %s}\n' \
        "$found" "$files" "$(json "$unset_line")" \
        "$(json '# both spellings; a leading dot means the domain below: export no_proxy=localhost,127.0.0.1,::1,.example.org NO_PROXY=localhost,127.0.0.1,::1,.example.org')"
}

main() {
    exec </dev/null # whatever is run here shall not read the rest of this script
    WARN='' FRESH=''
    case ${1-} in
        -h | --help | help)
            usage
            exit 0 ;;
        show | undo | proxy-off)
            [ $# -eq 1 ] || refuse 2 BAD_REQUEST "$1 takes nothing more" ;;
        set)
            [ $# -eq 3 ] || refuse 2 BAD_REQUEST "set takes what (pip, hf or cache) and one value" ;;
        *) refuse 2 BAD_REQUEST "say show, set, undo or proxy-off; see --help" ;;
    esac
    places
    case $1 in
        show) show ;;
        undo) undo ;;
        proxy-off) proxy_off ;;
        set)
            case $2 in
                pip) set_pip "$3" ;;
                hf) set_hf "$3" ;;
                cache) set_cache "$3" ;;
                *) refuse 2 BAD_REQUEST "set takes pip, hf or cache, and one value" ;;
            esac ;;
    esac
    exit 0
}

main "$@"
