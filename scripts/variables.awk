# Print `target:VARIABLE` for each variable that a target of a Makefile reads, and `target:` alone.
/^[a-z0-9-]+:/ { target = $0; sub(/:.*/, "", target); print target ":" }
/^\t/ {
    text = $0
    while (match(text, /\$\$\{?[A-Z][A-Z_]*/)) {
        name = substr(text, RSTART, RLENGTH)
        gsub(/[${]/, "", name)
        print target ":" name
        text = substr(text, RSTART + RLENGTH)
    }
}
