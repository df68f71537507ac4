"""Which generators of reasoning_gym strangers may run on one another's text, how, and why the others are refused.

Reviewed for version 0.1.25: the same problem for a seed in fresh processes with different hash seeds and global
random states, where need be in a process with a hash seed of our own; the scorer neither evaluates the answer as code
nor takes long over hostile text, where need be because only answers of a known form reach it.
"""

REVIEWED_VERSION = "0.1.25"

REFUSED = {
    "codeio": "it runs code snippets that depend on hash order, the clock and global randomness",
    "composite": "it is a mixture of datasets; name these as environments with weights",
    "intermediate_integration": "its scorer simplifies whatever formula an answer holds, without a bound on time",
    "propositional_logic": "its scorer takes a premise, copied from the question, for a conclusion",
}

# The generator reads its seed whenever it makes a problem: one object serves all seeds.
_REUSE = """
        ab advanced_geometry aiw arc_1d arc_agi base_conversion basic_arithmetic binary_alternation binary_matrix
        bitwise_arithmetic boxnet caesar_cipher calendar_arithmetic chain_sum circuit_logic coin_flip
        color_cube_rotation complex_arithmetic count_bits count_primes countdown course_schedule cryptarithm
        decimal_arithmetic decimal_chain_sum dice emoji_mystery family_relationships figlet_font
        fraction_simplification futoshiki game_of_life game_of_life_halting gcd graph_color group_anagrams jugs
        kakurasu knights_knaves largest_island lcm leg_counting letter_counting letter_jumble mahjong_puzzle
        manipulate_matrix maze mini_sudoku modulo_grid n_queens needle_haystack number_filtering number_format
        number_sequence number_sorting palindrome_generation palindrome_partitioning path_star
        polynomial_equations power_function prime_factorization products puzzle24 quantum_lock
        rearc rectangle_count rotate_matrix rotten_oranges rubiks_cube rush_hour self_reference sentence_reordering
        shortest_path simple_equations simple_geometry simple_integration sokoban spell_backward spiral_matrix
        string_insertion string_manipulation string_splitting string_synthesis sudoku syllogism time_intervals
        tower_of_hanoi tsumego word_sequence_reversal word_sorting zebra_puzzles
"""
REUSE = frozenset(_REUSE.split())

# The generator uses its seed while it is built.
REBUILD = frozenset({"acre", "gsm_symbolic", "list_functions", "survo"})

# The order of a set or Python's or numpy's global random state decides, or something is printed: made and scored in a
# process of their own.
APART = {
    "bf": "what it prints",
    "isomorphic_strings": "hash order",
    "knight_swap": "hash order",
    "list_functions": "global randomness",
    "polynomial_multiplication": "hash order",
    "pool_matrix": "global randomness (numpy)",
    "ransom_note": "hash order",
    "word_ladder": "hash order",
}

OFFERED = frozenset({*REUSE, *REBUILD, *APART})
