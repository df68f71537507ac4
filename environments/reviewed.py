"""Which generators of reasoning_gym strangers may run on one another's text, and why the others are refused.

Reviewed for version 0.1.25: the same problem for a seed in fresh processes with different hash seeds and global
random states; the scorer neither evaluates the answer as code nor takes long over hostile text of 4,096 characters.
"""

REVIEWED_VERSION = "0.1.25"

_EVALUATES = "its scorer evaluates the answer as code"
_UNSTABLE = "its problems differ from process to process"

REFUSED = {
    "codeio": _UNSTABLE,
    "isomorphic_strings": _UNSTABLE,
    "knight_swap": _UNSTABLE,
    "list_functions": _UNSTABLE,
    "ransom_note": _UNSTABLE,
    "word_ladder": _UNSTABLE,
    "pool_matrix": "it reseeds numpy's global generator",
    "binary_matrix": _EVALUATES,
    "countdown": _EVALUATES,
    "intermediate_integration": _EVALUATES,
    "n_queens": _EVALUATES,
    "polynomial_multiplication": _EVALUATES,
    "puzzle24": _EVALUATES,
    "simple_integration": _EVALUATES,
    "spiral_matrix": _EVALUATES,
    "string_insertion": _EVALUATES,
    "coin_flip": "its scorer hangs on answers such as 1e999999999",
    "propositional_logic": "its scorer can take seconds over hostile text",
    "futoshiki": "it takes most of a second to make a problem",
    "composite": "it is a mixture of datasets, not one",
}

# The generator reads its seed whenever it makes a problem: one object serves all seeds.
_REUSE = """
        ab advanced_geometry aiw arc_1d arc_agi base_conversion basic_arithmetic bf binary_alternation
        bitwise_arithmetic boxnet caesar_cipher calendar_arithmetic chain_sum circuit_logic
        color_cube_rotation complex_arithmetic count_bits count_primes course_schedule cryptarithm
        decimal_arithmetic decimal_chain_sum dice emoji_mystery family_relationships figlet_font
        fraction_simplification game_of_life game_of_life_halting gcd graph_color group_anagrams jugs
        kakurasu knights_knaves largest_island lcm leg_counting letter_counting letter_jumble mahjong_puzzle
        manipulate_matrix maze mini_sudoku modulo_grid needle_haystack number_filtering number_format
        number_sequence number_sorting palindrome_generation palindrome_partitioning path_star
        polynomial_equations power_function prime_factorization products quantum_lock rearc rectangle_count
        rotate_matrix rotten_oranges rubiks_cube rush_hour self_reference sentence_reordering shortest_path
        simple_equations simple_geometry sokoban spell_backward string_manipulation string_splitting
        string_synthesis sudoku syllogism time_intervals tower_of_hanoi tsumego word_sequence_reversal
        word_sorting zebra_puzzles
"""
REUSE = frozenset(_REUSE.split())

# The generator uses its seed while it is built.
REBUILD = frozenset({"acre", "gsm_symbolic", "survo"})
