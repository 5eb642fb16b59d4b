# Installing single packages of Debian sid on an older Debian, for the scripts beside this file, which source it.
# They set STATE, a directory of their own, and define `say` and `die`.

readonly FOR_DEBIAN="this script is for Debian; elsewhere, install it as its documentation says"

missing_packages() {
    local package
    for package in "$@"; do
        dpkg-query --show --showformat '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed \
            || printf '%s\n' "$package"
    done
}

# A private apt configuration: the machine's own sources plus Debian sid, with everything in sid but the
# named packages pinned away. The machine's configuration and lists stay as they are, so a later
# `apt-get upgrade` by anybody does not see sid.
configure_apt() { # packages that may come from sid
    local codename mirror
    codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    mirror=$(apt-get indextargets --format '$(REPO_URI)' \
        'Created-By: Packages' 'Origin: Debian' 'Label: Debian' "Codename: $codename" | head -n 1)
    if [[ -z $mirror ]]; then
        # Before the first `apt-get update` nothing says whose the targets are; then their suite tells.
        apt-get -q update >&2
        mirror=$(apt-get indextargets --format '$(REPO_URI)' \
            'Created-By: Packages' 'Origin: Debian' 'Label: Debian' "Codename: $codename" | head -n 1)
    fi
    [[ -n $mirror ]] || die "apt's sources name no Debian mirror" "$FOR_DEBIAN"

    rm -rf "$STATE/apt"
    mkdir -p "$STATE/apt/sources.list.d" "$STATE/apt/preferences.d" "$STATE/apt/lists/partial"
    local directory file
    for directory in sources.list.d preferences.d; do
        for file in /etc/apt/"$directory"/*; do
            if [[ -f $file ]]; then cp "$file" "$STATE/apt/$directory/"; fi
        done
    done
    cat >"$STATE/apt/sources.list.d/sid.sources" <<END
Types: deb
URIs: $mirror
Suites: sid
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
    cat >"$STATE/apt/preferences.d/sid" <<END
Package: *
Pin: release n=sid
Pin-Priority: -1

Package: $*
Pin: release n=sid
Pin-Priority: 990
END
    cat >"$STATE/apt/apt.conf" <<END
Dir::Etc::SourceParts "$STATE/apt/sources.list.d";
Dir::Etc::PreferencesParts "$STATE/apt/preferences.d";
Dir::State::Lists "$STATE/apt/lists";
Acquire::Retries "3";
END
}

install_packages() { # names of the arrays with the packages from sid, and from the machine's own release
    local -n from_sid=$1 from_own=$2
    local packages
    mapfile -t packages < <(missing_packages "${from_sid[@]}" "${from_own[@]}")
    if ((${#packages[@]} == 0)); then return; fi
    command -v apt-get >/dev/null || die "apt-get is not here, and these are missing: ${packages[*]}" "$FOR_DEBIAN"
    ((EUID == 0)) || die "installing ${packages[*]} needs root"
    say "installing ${packages[*]}"
    configure_apt "${from_sid[@]}"
    # RUNLEVEL=1 keeps the packages' own service scripts from starting anything.
    export APT_CONFIG="$STATE/apt/apt.conf" DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
    apt-get -q update >&2 || die "apt-get update failed" "its messages are above"
    apt-get -q install --yes --no-install-recommends "${packages[@]}" >&2 || die "apt-get install failed" "its messages are above"
    unset APT_CONFIG
    rm -rf "$STATE/apt"
}
