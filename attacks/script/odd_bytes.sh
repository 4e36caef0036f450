#!/bin/sh
# Bytes that break terminals, logs, JSON lines and pages. The suite compares.
printf 'STOPPED odd: what follows is not text\n'
printf '\000\001\377\376\303\050\355\240\200\033]0;owned\007\033[2J\r\n"}\n{"level":"fake"}\n<script>alert(1)</script>\n\342\200\256'
