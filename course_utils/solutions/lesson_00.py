"""The references of lesson 00."""


def count_replicas(strategy):
    return strategy.num_replicas_in_sync


def global_batch_size(per_replica_batch, workers, replicas_per_worker):
    return per_replica_batch * workers * replicas_per_worker


def memory_per_replica(weight_bytes, slots, bytes_per_example, global_batch, replicas):
    copies = 2 + slots  # the weights, their gradients, the optimizer's own numbers for each weight
    return copies * weight_bytes + bytes_per_example * global_batch / replicas
