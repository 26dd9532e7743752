"""Training: for ranking (``ranking``), of sparse autoencoders (``sae``), and on masked texts
(``pretraining``).

The way of a training for ranking: ``config`` reads a configuration; ``run`` asks ``collection``
for documents, queries, lists (``lexicept.candidates``) and teacher scores, and ``initial_encoder``
for the encoder; ``data`` makes batches, ``objective`` their loss (``losses``, ``regularizers``),
``trainer`` the steps and checkpoints, ``validation`` the measures, ``metrics`` the file.
"""
