# corpus: {"stdin": "2\n"}
PS3='pick: '
select x in one two; do echo "$x"; break; done
