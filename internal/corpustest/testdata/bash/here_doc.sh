name=world
cat <<END
hello $name $((1 + 2))
END
cat <<'END'
literal $name
END
cat <<-END
	tabs go
	END
cat <<< "here string"
