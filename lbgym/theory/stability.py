"""stub"""
def growth_of(system, plan):
    return None
