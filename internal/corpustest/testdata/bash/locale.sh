locale 2>/dev/null | head -1; x=über; echo "${#x}"; printf '%.2f\n' 1.5
