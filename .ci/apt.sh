# Functions that install single packages from Debian sid on an older Debian. The other scripts in this directory
# source this file; they set STATE to a directory of their own and define `say` and `die`.

readonly FOR_DEBIAN="this script is for Debian; on other systems, install the packages by hand"

missing_packages() {
    local package
    for package in "$@"; do
        dpkg-query --show --showformat '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed \
            || printf '%s\n' "$package"
    done
}

# Writes a private apt configuration: the machine's sources and Debian sid, with all packages from sid disabled except
# the given ones. The machine's own configuration and lists do not change, so a later `apt-get upgrade` ignores sid.
configure_apt() { # packages that may come from sid
    local codename mirror
    codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    mirror=$(apt-get indextargets --format '$(REPO_URI)' \
        'Created-By: Packages' 'Origin: Debian' 'Label: Debian' "Codename: $codename" | head -n 1)
    if [[ -z $mirror ]]; then
        # Before the first `apt-get update`, apt does not know the origin of its targets.
        apt-get -q update >&2
        mirror=$(apt-get indextargets --format '$(REPO_URI)' \
            'Created-By: Packages' 'Origin: Debian' 'Label: Debian' "Codename: $codename" | head -n 1)
    fi
    [[ -n $mirror ]] || die "apt's sources contain no Debian mirror" "$FOR_DEBIAN"

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

install_packages() { # the names of two arrays: packages from sid, and from the machine's own release
    local -n from_sid=$1 from_own=$2
    local packages
    mapfile -t packages < <(missing_packages "${from_sid[@]}" "${from_own[@]}")
    if ((${#packages[@]} == 0)); then return; fi
    command -v apt-get >/dev/null \
        || die "these packages are missing, and there is no apt-get to install them: ${packages[*]}" "$FOR_DEBIAN"
    ((EUID == 0)) || die "root is needed to install ${packages[*]}" "run this as root, or install them by hand"
    say "installing ${packages[*]}"
    configure_apt "${from_sid[@]}"
    # With RUNLEVEL=1, the packages' service scripts start nothing.
    export APT_CONFIG="$STATE/apt/apt.conf" DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
    apt-get -q update >&2 || die "apt-get update failed" "its messages are above"
    apt-get -q install --yes --no-install-recommends "${packages[@]}" >&2 \
        || die "apt-get install failed" "its messages are above"
    unset APT_CONFIG
    rm -rf "$STATE/apt"
}
