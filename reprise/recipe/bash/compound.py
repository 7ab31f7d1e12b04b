"""Compound commands: if, while, for, case, functions, groups, [[ … ]]."""

from __future__ import annotations

from collections.abc import Callable

from reprise.recipe.bash.grammar.parser import Parser
from reprise.recipe.bash.grammar.syntax import (
    Brackets,
    Case,
    CFor,
    Clause,
    For,
    Function,
    Group,
    If,
    Node,
    Sequence,
    Subshell,
    While,
    Word,
)

__all__ = ["compound", "function_body"]

_TEST_OPERATORS = ("&&", "||", "(", ")", "<", ">")


def compound(parser: Parser, word: str) -> Node:
    """The compound command that is next; `word` is its reserved word, '' for a parenthesis."""
    if word == "function":
        return _function(parser)
    if parser.starts("("):
        node = _parenthesis(parser)
    else:
        takers: dict[str, Callable[[Parser], Node]] = {
            "if": _if, "while": _while, "until": _while, "for": _for, "select": _for,
            "case": _case, "{": _group, "[[": _brackets,
        }  # fmt: skip
        if word not in takers:
            raise parser.fail("expected a compound command such as { or if")
        node = takers[word](parser)
    redirects = parser.redirects()
    if not isinstance(node, Function):
        node.redirects = redirects  # type: ignore[union-attr]
    return node


def function_body(parser: Parser, name: str, row: int) -> Function:
    """The body of NAME()."""
    parser.newlines()
    word = parser._peek()
    return Function(name, compound(parser, word), row)


def _function(parser: Parser) -> Node:
    row = parser.row()
    parser.at += len("function")
    parser.blanks()
    name = parser._peek()
    parser.at += len(name)
    parser.blanks()
    if parser.starts("("):
        parser.at += 1
        parser.blanks()
        if not parser.starts(")"):
            raise parser.fail("expected ) after the name of a function")
        parser.at += 1
    return function_body(parser, name, row)


def _parenthesis(parser: Parser) -> Node:
    start, row = parser.at, parser.row()
    if parser.starts("(("):
        found = parser.arithmetic(start)
        if found is not None:
            return found
    parser.at += 1
    body = parser.sequence((")",))
    if not parser.starts(")"):
        raise parser.fail(f"( of line {row} is not closed")
    parser.at += 1
    return Subshell(body, row)


def _filled(parser: Parser, ends: tuple[str, ...], what: str) -> Sequence:
    body = parser.sequence(ends)
    if not body.items:
        raise parser.fail(f"there is no command after {what!r}")
    return body


def _if(parser: Parser) -> Node:
    row, clauses, otherwise = parser.row(), list[Clause](), None
    parser.at += len("if")
    while True:
        at = parser.row()
        start = parser.at
        condition = _filled(parser, ("then",), "if")
        source = parser.text[start : parser.at].strip().rstrip(";")
        parser.expect("then", "if", row)
        body = _filled(parser, ("elif", "else", "fi"), "then")
        clauses.append(Clause(condition, body, at, source))
        if parser._peek() != "elif":
            break
        parser.at += len("elif")
    if parser._peek() == "else":
        parser.at += len("else")
        otherwise = _filled(parser, ("fi",), "else")
    parser.expect("fi", "if", row)
    return If(clauses, otherwise, row)


def _while(parser: Parser) -> Node:
    row, word = parser.row(), parser._peek()
    parser.at += len(word)
    start = parser.at
    condition = _filled(parser, ("do",), word)
    source = parser.text[start : parser.at].strip().rstrip(";")
    return While(condition, _do(parser, word, row), word == "until", row, source)


def _do(parser: Parser, opened: str, row: int) -> Sequence:
    parser.newlines()
    parser.expect("do", opened, row)
    body = _filled(parser, ("done",), "do")
    parser.expect("done", opened, row)
    return body


def _for(parser: Parser) -> Node:
    row, opened = parser.row(), parser._peek()
    parser.at += len(opened)
    parser.blanks()
    if parser.starts("(("):
        return _c_for(parser, row)
    name = parser.name()
    if name is None:
        raise parser.fail(f"expected a name after {opened!r}")
    parser.newlines()
    words: list[Word] | None = None
    if parser._peek() == "in":
        parser.at += len("in")
        words = []
        while True:
            parser.blanks()
            word = parser.word()
            if word is None:
                break
            words.append(word)
    parser.blanks()
    if parser.starts(";"):
        parser.at += 1
    return For(name, words, _loop_body(parser, opened, row), row)


def _loop_body(parser: Parser, opened: str, row: int) -> Sequence:
    """do … done, or the { … } that bash takes as well."""
    parser.newlines()
    if parser._peek() == "{":
        node = _group(parser)
        assert isinstance(node, Group)
        return node.body
    return _do(parser, opened, row)


def _c_for(parser: Parser, row: int) -> Node:
    parser.at += 2
    start = parser.at
    parser.parts("arith", True)
    text = parser.text[start : parser.at]
    if not parser.starts("))"):
        raise parser.fail("for (( is not closed")
    parser.at += 2
    pieces = text.split(";")
    if len(pieces) != 3:
        raise parser.fail("for (( takes three expressions")
    from reprise.recipe.bash.grammar.lexer import word_of

    first, condition, step = (word_of(piece, "text", row) for piece in pieces)
    parser.blanks()
    if parser.starts(";"):
        parser.at += 1
    return CFor((first, condition, step), _loop_body(parser, "for", row), row)


def _case(parser: Parser) -> Node:
    row = parser.row()
    parser.at += len("case")
    parser.blanks()
    word = parser.word()
    if word is None:
        raise parser.fail("case has no word")
    parser.newlines()
    parser.expect("in", "case", row)
    items: list[tuple[list[Word], Sequence, str]] = []
    while True:
        parser.newlines()
        if parser._peek() == "esac":
            parser.at += len("esac")
            return Case(word, items, row)
        items.append(_case_item(parser, row))


def _case_item(parser: Parser, row: int) -> tuple[list[Word], Sequence, str]:
    if parser.starts("("):
        parser.at += 1
    patterns = []
    while True:
        parser.blanks()
        pattern = parser.word()
        if pattern is None:
            raise parser.fail(f"expected a pattern or 'esac' to close 'case' of line {row}")
        patterns.append(pattern)
        parser.blanks()
        if not parser.starts("|"):
            break
        parser.at += 1
    if not parser.starts(")"):
        raise parser.fail("expected ) after a pattern")
    parser.at += 1
    body = parser.sequence((";;", ";&", "esac"))
    ending = next((end for end in (";;&", ";;", ";&") if parser.starts(end)), "")
    parser.at += len(ending)
    return patterns, body, ending or ";;"


def _group(parser: Parser) -> Node:
    row = parser.row()
    parser.at += 1
    body = parser.sequence(("}",))
    parser.expect("}", "{", row)
    return Group(body, row)


def _brackets(parser: Parser) -> Node:
    row, start = parser.row(), parser.at
    parser.at += 2
    tokens: list[Word | str] = []
    while True:
        parser.newlines()
        if parser._peek() == "]]":
            parser.at += 2
            return Brackets(tokens, row, parser.text[start : parser.at])
        operator = next((text for text in _TEST_OPERATORS if parser.starts(text)), None)
        if operator is not None and not (tokens and tokens[-1] == "=~"):
            parser.at += len(operator)
            tokens.append(operator)
            continue
        word = parser.word("regex" if tokens and tokens[-1] == "=~" else "word")
        if word is None:
            raise parser.fail(f"[[ of line {row} is not closed")
        tokens.append("=~" if word.plain == "=~" else word)
