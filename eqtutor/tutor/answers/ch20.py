"""20 Attention: a loop with relative encodings, a constant image, a test for the port."""
# Plain module: edited by hand, no notebook exports it.
import torch

from ..exercise import Exercise, Mistake
from .draws import normal, shuffled


def rows_of_tokens(seed):
    "f, Wq, Wk, Wv, table, reach: short and long rows, reaches that end within and beyond them."
    def case(n, reach, seed):
        maps = (normal(3, 3, seed=seed + i) for i in range(1, 4))
        return normal(n, 3, seed=seed), *maps, normal(2*reach + 1, 3, seed=seed + 4), reach
    return [case(7, 1, seed), case(6, 2, seed + 10), case(3, 4, seed + 20)]

def attention_in_a_row(f, Wq, Wk, Wv, table, reach, near=None, offset=None, encoded=None,
                       soft=lambda s: s.softmax(0)):
    "What differs in the mistakes: sources, the offset of i and j, what is encoded, the weights."
    n = len(f)
    near = near or (lambda i: range(max(0, i - reach), min(n, i + reach + 1)))
    offset = offset or (lambda i, j: j - i)
    def key_and_value(i, j):
        rho = table[offset(i, j) + reach]
        if encoded == 'value too': return Wk @ (f[j] + rho), Wv @ (f[j] + rho)
        if encoded == 'after W_k': return Wk @ f[j] + rho, Wv @ f[j]
        return Wk @ (f[j] + rho), Wv @ f[j]
    def at(i):
        keys, values = zip(*(key_and_value(i, j) for j in near(i)))
        return soft(torch.stack(keys) @ (Wq @ f[i])) @ torch.stack(values)
    return torch.stack([at(i) for i in range(n)])

def row_attention(f, Wq, Wk, Wv, table, reach):
    return attention_in_a_row(f, Wq, Wk, Wv, table, reach)

def offset_turned_round(*case): return attention_in_a_row(*case, offset=lambda i, j: i - j)

def values_encoded(*case): return attention_in_a_row(*case, encoded='value too')

def encoded_keys(*case): return attention_in_a_row(*case, encoded='after W_k')

def without_encoding(f, Wq, Wk, Wv, table, reach):
    return attention_in_a_row(f, Wq, Wk, Wv, 0*table, reach)

def gates(*case): return attention_in_a_row(*case, soft=torch.sigmoid)

def scores_alone(*case): return attention_in_a_row(*case, soft=lambda s: s)

def not_normalised(*case): return attention_in_a_row(*case, soft=torch.exp)

def values_not_mapped(f, Wq, Wk, Wv, table, reach):
    return row_attention(f, Wq, Wk, torch.eye(len(Wv)).to(Wv), table, reach)

def query_not_mapped(f, Wq, Wk, Wv, table, reach):
    return row_attention(f, torch.eye(len(Wq)).to(Wq), Wk, Wv, table, reach)

def table_from_its_start(f, Wq, Wk, Wv, table, reach):
    return row_attention(f, Wq, Wk, Wv, table.roll(reach, 0), reach)

def query_encoded(f, Wq, Wk, Wv, table, reach):
    "The encoding of offset 0 added to what asks."
    def at(i):
        near = slice(max(0, i - reach), i + reach + 1)
        there = f[near] + table[reach + near.start - i:][:len(f[near])]
        return (there @ Wk.T @ (Wq @ (f[i] + table[reach]))).softmax(0) @ (f[near] @ Wv.T)
    return torch.stack([at(i) for i in range(len(f))])

def around_the_end(f, Wq, Wk, Wv, table, reach):
    "Python's f[-1] is the last token."
    n = len(f)
    def at(i):
        places = [(i + d, d) for d in range(-reach, reach + 1) if i + d < n]
        keys = torch.stack([Wk @ (f[j % n] + table[d + reach]) for j, d in places])
        return (keys @ (Wq @ f[i])).softmax(0) @ torch.stack([Wv @ f[j % n] for j, _ in places])
    return torch.stack([at(i) for i in range(n)])

def padded_with_zeros(f, Wq, Wk, Wv, table, reach):
    zeros = f.new_zeros(reach, f.shape[1])
    wide = torch.cat([zeros, f, zeros])
    def at(i):
        window = wide[i:i + 2*reach + 1]
        return ((window + table) @ Wk.T @ (Wq @ f[i])).softmax(0) @ (window @ Wv.T)
    return torch.stack([at(i) for i in range(len(f))])

def one_too_few(f, Wq, Wk, Wv, table, reach):
    def near(i): return range(max(0, i - reach), min(len(f), max(i + reach, 1)))
    return attention_in_a_row(f, Wq, Wk, Wv, table, reach, near=near)

def scaled(f, Wq, Wk, Wv, table, reach):
    return attention_in_a_row(f, Wq/len(Wq)**.5, Wk, Wv, table, reach)


def factors(d):
    "What the products Q[i, c]·K[j, c] are summed with for scores of each channel, of five kinds."
    alike, apart = torch.ones(d, d, dtype=torch.float64), torch.eye(d, dtype=torch.float64)
    return [alike, apart, alike/d**.5, alike/d, apart/2]

def queries_keys_values(seed):
    "The five kinds in an order by chance, and Q, K, V."
    return [(shuffled(factors(d), seed + n), *(normal(n, d, seed=seed + 3*n + i) for i in range(3)))
            for n, d in ((5, 4), (7, 3), (4, 5), (6, 4))]

# attention where the scores of all channels are the same sum, and the port where each has its own
ATTEND = '''[fn(lambda Q, K, V, M=M:
    torch.einsum('cd,id,jd->ijc', M, Q, K).softmax(1).mul(V).sum(1), *case[1:]) for M in case[0]]'''

def of_each_kind(said, case):
    "What is said of the five kinds, in their own order."
    kinds = [next(i for i, M in enumerate(case[0]) if torch.equal(M, kind))
             for kind in factors(len(case[0][0]))]
    return [bool(said[i]) for i in kinds]

OF_ATTENDS = ('False for attention', 'True for the port', 'False for scores divided by √d',
              'False for scores divided by d', 'True for the port with a factor')

def changes(attend, Q, K, V, new_Q, new_K, new_V):
    return not torch.allclose(attend(Q, K, V), attend(new_Q, new_K, new_V))

def notices(layer, Q, K, V): return changes(layer, Q, K, V, Q.flip(1), K.flip(1), V)

def turns_queries_only(attend, Q, K, V): return changes(attend, Q, K, V, Q.flip(1), K, V)

def shuffles_tokens(attend, Q, K, V):
    return changes(attend, Q, K, V, Q, K.flip(0), V.flip(0))

def other_way_round(attend, Q, K, V): return not notices(attend, Q, K, V)

def computes_attention(attend, Q, K, V):
    return not torch.allclose(attend(Q, K, V), (Q @ K.T).softmax(1) @ V)


EXERCISES = [
    Exercise('20.1', 'code', 3, row_attention, rows_of_tokens, mistakes=[
        Mistake(offset_turned_round,
                'Your offsets are turned round: Δ is where the *source* stands as seen from the '
                'target, j − i.'),
        Mistake(values_encoded,
                'You encode the values too. The encoding decides who is heard, not what is said.'),
        Mistake(encoded_keys,
                'You add the encoding after W_k. In Equation 20.2 it is added to f(j), before.'),
        Mistake(without_encoding, 'The encoding is missing.'),
        Mistake(gates,
                'Your weights are a sigmoid; they must sum to one over the sources.'),
        Mistake(scores_alone,
                'You average with the scores. A softmax over the sources is missing.'),
        Mistake(not_normalised,
                'Your weights do not sum to one: divide the exponentials by their sum.'),
        Mistake(values_not_mapped, 'What is averaged is W_v f(j), not f(j).'),
        Mistake(query_not_mapped, 'The query is W_q f(i), not f(i).'),
        Mistake(table_from_its_start,
                'You read `table[Δ]`. Offset 0 stands in the middle of the table; and '
                'Python takes a negative index for one from the end.'),
        Mistake(query_encoded,
                'You encode the query as well. With a relative encoding ρ(i) = 0.'),
        Mistake(around_the_end,
                'Some of your sources have negative places, and Python takes f[-1] for the last '
                'token. A row ends at 0.'),
        Mistake(padded_with_zeros,
                'Beyond the ends of the row you have zeros that take part in the softmax. There '
                'are no tokens there.'),
        Mistake(one_too_few,
                'The rightmost source is missing: `range` leaves out its end, so write '
                'i + reach + 1.'),
        Mistake(scaled, 'You divide the scores by √d. Equation 20.2 has no such factor.'),
    ]),
    Exercise('20.2', 'proof', 3),
    Exercise('20.3', 'predict', 2, name='constant_output', right=[True, True, False, False],
             mistakes=[
        Mistake([True, False, False, False],
                'With the mask all weights go to pixels of the same value, and weights sum to one: '
                'the output is that value, whatever the encoding says.'),
        Mistake([True, True, True, False],
                'Zeros outside take part of the attention with them: near the border less of it is '
                'left for the image.'),
        Mistake([True, True, False, True],
                'An encoding does not give back what has gone to the zeros outside.'),
        Mistake([False]*4, 'Without zeros outside, a mean of equal values is that value.'),
        Mistake([True]*4, 'With "zero" a pixel at the border averages zeros, too.'),
    ]),
    Exercise('20.4', 'code', 2, notices, queries_keys_values, ATTEND, measure=of_each_kind,
             facts=OF_ATTENDS, mistakes=[
        Mistake(turns_queries_only,
                'You say True to attention as well: it notices your change. Change Q and K alike, '
                'and leave V as it is.'),
        Mistake(shuffles_tokens,
                'You say False to the port as well: it does not notice your change either, as '
                'when tokens are shuffled. Change the channels of Q and K.'),
        Mistake(other_way_round,
                'The other way round: True where the change is *noticed*, that is, for the port.'),
        Mistake(computes_attention,
                'You compute attention yourself, with one factor before the scores. The function '
                'you are handed may have another.'),
    ]),
]
