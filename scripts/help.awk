# Print the targets of a Makefile: `##@ text` is a heading, `name: ... ## text` a target.
/^##@ / { printf "\n%s\n", substr($0, 5) }
/^[a-z0-9-]+:.*## / {
    name = $0; sub(/:.*/, "", name)
    text = $0; sub(/^[^#]*## /, "", text)
    printf "  %-20s %s\n", name, text
}
